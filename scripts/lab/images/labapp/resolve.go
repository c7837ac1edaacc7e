package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// udpSize is the size of answers over UDP that a query allows: what resolvers of today ask for.
const udpSize = 1232

var queryTypes = map[string]dnsmessage.Type{
	"A":    dnsmessage.TypeA,
	"AAAA": dnsmessage.TypeAAAA,
	"SRV":  dnsmessage.TypeSRV,
	"TXT":  dnsmessage.TypeTXT,
	"SOA":  dnsmessage.TypeSOA,
	"PTR":  dnsmessage.TypePTR,
}

// resolve sends one query for a name, without the search list, and prints the answer: its code,
// then a record on each line. Any answer is a success.
func resolve(ctx context.Context, args []string) error {
	overTCP := slices.Contains(args, "--tcp")
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--tcp" })
	rest, values, err := split(args, "type", "server", "timeout", "until")
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errors.New("resolve wants NAME")
	}
	timeout, err := timeoutOf(values)
	if err != nil {
		return err
	}
	kind, ok := queryTypes[strings.ToUpper(cmp.Or(values["type"], "A"))]
	if !ok {
		return fmt.Errorf("no record type %q here", values["type"])
	}
	server := values["server"]
	if server == "" {
		if server, err = ownNameServer("/etc/resolv.conf"); err != nil {
			return err
		}
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(server, "53")
	}
	query, err := queryFor(rest[0], kind)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if code := values["until"]; code != "" {
		return askUntil(ctx, server, overTCP, query, code)
	}
	lines, err := ask(ctx, server, overTCP, query)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(lines, "\n"))
	return nil
}

// How often askUntil asks, and how long it waits for an answer.
const askEvery, askPatience = 20 * time.Millisecond, time.Second

// askUntil repeats a query until the answer has a code, and prints when it arrived, in ms since
// 1970.
func askUntil(ctx context.Context, server string, overTCP bool, query []byte, code string) error {
	every := time.NewTicker(askEvery)
	defer every.Stop()
	var last error
	for {
		once, cancel := context.WithTimeout(ctx, askPatience)
		lines, err := ask(once, server, overTCP, query)
		cancel()
		if err == nil && lines[0] == code {
			fmt.Printf("%s\nat %d\n", strings.Join(lines, "\n"), time.Now().UnixMilli())
			return nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("%s answers %s", server, lines[0])
		}
		select {
		case <-ctx.Done():
			return last
		case <-every.C:
		}
	}
}

func ask(ctx context.Context, server string, overTCP bool, query []byte) ([]string, error) {
	answer, err := exchange(ctx, server, overTCP, query)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", server, err)
	}
	lines, err := answerLines(answer)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", server, err)
	}
	return lines, nil
}

// ownNameServer is the first name server of a resolv.conf.
func ownNameServer(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%s names no server", file)
}

func queryFor(name string, kind dnsmessage.Type) ([]byte, error) {
	parsed, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", name, err)
	}
	var edns dnsmessage.ResourceHeader
	if err := edns.SetEDNS0(udpSize, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}
	return (&dnsmessage.Message{
		Header:      dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: parsed, Type: kind, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{{Header: edns, Body: &dnsmessage.OPTResource{}}},
	}).Pack()
}

func exchange(ctx context.Context, server string, overTCP bool, query []byte) ([]byte, error) {
	network := "udp"
	if overTCP {
		network = "tcp"
		query = slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query)
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(defaultTimeout)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	if !overTCP {
		answer := make([]byte, 1<<16)
		n, err := conn.Read(answer)
		return answer[:n], err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err = io.ReadFull(conn, answer)
	return answer, err
}

// rcodes are the codes that servers answer with, by their usual names.
var rcodes = map[dnsmessage.RCode]string{
	dnsmessage.RCodeSuccess:        "NOERROR",
	dnsmessage.RCodeFormatError:    "FORMERR",
	dnsmessage.RCodeServerFailure:  "SERVFAIL",
	dnsmessage.RCodeNameError:      "NXDOMAIN",
	dnsmessage.RCodeNotImplemented: "NOTIMP",
	dnsmessage.RCodeRefused:        "REFUSED",
}

// answerLines prints an answer: the code, with "truncated" if the server has left out records, then
// the records, then those of the section for authorities after a semicolon.
func answerLines(answer []byte) ([]string, error) {
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return nil, err
	}
	first := cmp.Or(rcodes[m.RCode], fmt.Sprintf("RCODE%d", m.RCode))
	if m.Truncated {
		first += " truncated"
	}
	lines := []string{first}
	for _, r := range m.Answers {
		lines = append(lines, recordLine(r))
	}
	for _, r := range m.Authorities {
		lines = append(lines, "; "+recordLine(r))
	}
	return lines, nil
}

func recordLine(r dnsmessage.Resource) string {
	kind := strings.TrimPrefix(r.Header.Type.String(), "Type")
	return fmt.Sprintf("%s %d %s %s", r.Header.Name, r.Header.TTL, kind, recordData(r.Body))
}

func recordData(body dnsmessage.ResourceBody) string {
	switch b := body.(type) {
	case *dnsmessage.AResource:
		return net.IP(b.A[:]).String()
	case *dnsmessage.AAAAResource:
		return net.IP(b.AAAA[:]).String()
	case *dnsmessage.SRVResource:
		return fmt.Sprintf("%d %d %d %s", b.Priority, b.Weight, b.Port, b.Target)
	case *dnsmessage.TXTResource:
		return fmt.Sprintf("%q", b.TXT)
	case *dnsmessage.PTRResource:
		return b.PTR.String()
	case *dnsmessage.CNAMEResource:
		return b.CNAME.String()
	case *dnsmessage.SOAResource:
		return fmt.Sprintf("%s %s %d minimum %d", b.NS, b.MBox, b.Serial, b.MinTTL)
	default:
		return body.GoString()
	}
}
