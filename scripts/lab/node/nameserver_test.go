package node

import (
	"bytes"
	"testing"
)

func TestNoSuchName(t *testing.T) {
	// The header of a query with ID 0x1234, recursion desired, one question; then the question:
	// "a.", A, IN.
	query := []byte{0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1}
	want := bytes.Clone(query)
	want[2] = 0x81
	want[3] = 0x83 // a response, recursion available, NXDOMAIN
	if !noSuchName(query) || !bytes.Equal(query, want) {
		t.Errorf("got % x\nwant % x", query, want)
	}
	if noSuchName(query) {
		t.Error("a response was answered: two servers would answer each other for ever")
	}
	if noSuchName(query[:11]) {
		t.Error("half a header was answered")
	}
}
