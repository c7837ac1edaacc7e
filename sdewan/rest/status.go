package rest

import (
	"bytes"
	"encoding/json"
)

// MaxEntries is the maximum number of connections, and of neighbours, that the status of subctl's
// CNF lists.
const MaxEntries = 10000

// Entries returns the number of entries that the status of a module lists: of a list (conntrack,
// neighbour), or of all tables of an object (route). It reads one token at a time, as a CNF may
// return millions of them.
func Entries(status []byte) (n int) {
	level := 1
	if bytes.HasPrefix(bytes.TrimSpace(status), []byte("{")) {
		level = 3 // {"main": {"item": [ENTRY, …]}}
	}
	d := json.NewDecoder(bytes.NewReader(status))
	depth := 0
	for {
		t, err := d.Token()
		if err != nil {
			return n
		}
		if t == json.Delim(']') || t == json.Delim('}') {
			depth--
			continue
		}
		if depth == level {
			n++
		}
		if _, opens := t.(json.Delim); opens {
			depth++
		}
	}
}
