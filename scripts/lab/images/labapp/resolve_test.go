package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestAnswerLines(t *testing.T) {
	name := dnsmessage.MustNewName("web.shop.svc.clusterset.local.")
	header := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 5}
	with := func(kind dnsmessage.Type) dnsmessage.ResourceHeader {
		h := header
		h.Type = kind
		return h
	}
	message := dnsmessage.Message{
		Header: dnsmessage.Header{Response: true, Truncated: true, RCode: dnsmessage.RCodeNameError},
		Answers: []dnsmessage.Resource{
			{Header: with(dnsmessage.TypeA), Body: &dnsmessage.AResource{A: [4]byte{10, 1, 2, 3}}},
			{
				Header: with(dnsmessage.TypeSRV),
				Body:   &dnsmessage.SRVResource{Priority: 1, Weight: 2, Port: 80, Target: name},
			},
			{Header: with(dnsmessage.TypeTXT), Body: &dnsmessage.TXTResource{TXT: []string{"1.0.0"}}},
		},
		Authorities: []dnsmessage.Resource{
			{
				Header: with(dnsmessage.TypeSOA),
				Body:   &dnsmessage.SOAResource{NS: name, MBox: name, Serial: 7, MinTTL: 5},
			},
		},
	}
	packed, err := message.Pack()
	if err != nil {
		t.Fatal(err)
	}
	got, err := answerLines(packed)
	if err != nil {
		t.Fatal(err)
	}
	const n = "web.shop.svc.clusterset.local."
	want := []string{
		"NXDOMAIN truncated", n + " 5 A 10.1.2.3", n + " 5 SRV 1 2 80 " + n, n + ` 5 TXT ["1.0.0"]`,
		"; " + n + " 5 SOA " + n + " " + n + " 7 minimum 5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestOwnNameServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("search a b\nnameserver 10.101.0.10\nnameserver 10.1.1.1\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ownNameServer(file); err != nil || got != "10.101.0.10" {
		t.Errorf("got %q, %v", got, err)
	}
}
