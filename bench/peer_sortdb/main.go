// The peer of bench_sortdb: answers /get and /range over a sorted file with net/http, on one processor.
//
//	peer_sortdb FILE      prints its port
package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sort"
	"strconv"
	"syscall"
)

type text []byte

// The line that contains the byte at i.
func (t text) line(i int) (int, int) {
	begin := bytes.LastIndexByte(t[:i], '\n') + 1
	end := bytes.IndexByte(t[i:], '\n')
	if end < 0 {
		return begin, len(t)
	}
	return begin, i + end + 1
}

func (t text) key(begin, end int) []byte {
	line := t[begin:end]
	if at := bytes.IndexByte(line, ','); at >= 0 {
		return line[:at+1]
	}
	return line
}

// The start of the first line whose key, with its comma, is at or after the sought one.
func (t text) seek(key []byte, past bool) int {
	i := sort.Search(len(t), func(i int) bool {
		order := bytes.Compare(t.key(t.line(i)), key)
		return order > 0 || (order == 0 && !past)
	})
	if i == len(t) {
		return i
	}
	begin, _ := t.line(i)
	return begin
}

func send(w http.ResponseWriter, body []byte) {
	if len(body) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

func main() {
	runtime.GOMAXPROCS(1)
	f, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	info, err := f.Stat()
	if err != nil {
		panic(err)
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	t := text(data)
	http.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		key := []byte(r.FormValue("key") + ",")
		begin := t.seek(key, false)
		if begin == len(t) {
			send(w, nil)
			return
		}
		_, end := t.line(begin)
		if !bytes.HasPrefix(t[begin:end], key) {
			send(w, nil)
			return
		}
		send(w, t[begin+len(key):end])
	})
	http.HandleFunc("/range", func(w http.ResponseWriter, r *http.Request) {
		begin := t.seek([]byte(r.FormValue("start")+","), false)
		send(w, t[begin:t.seek([]byte(r.FormValue("end")+","), true)])
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, nil))
}
