# Makes m.js smaller: removes comments, indentation, line ends, and spaces beside punctuation. The strings of m.js have no such spaces, and
# each statement ends with a semicolon or a brace.
/^ *\/\//d
s| // .*||
s/^ +//
s/ ?(=>|[][+*={}()<>&|?:;,!]) ?/\1/g
H
$!d
x
s/\n//g
