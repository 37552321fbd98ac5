# Makes m.js smaller: removes comments, indentation, empty lines, and spaces beside punctuation. m.js has no spaces in strings.
/^ *\/\//d
s| // .*||
s/^ +//
/^$/d
s/ ?(=>|[][+*={}()<>&|?:;,!]) ?/\1/g
