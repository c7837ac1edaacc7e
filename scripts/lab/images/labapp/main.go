// Labapp is what test pods run: servers that say who they are, and clients that check what comes
// back. One static binary, FROM scratch. Clients print one line, or JSON, and exit with 1 when
// something was wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const usage = `usage:
  labapp web [:8080]                                 HTTP server that says pod, node and client; TCP and UDP echo on port 7
  labapp get URL [-n N] [--timeout D] [--pause D]    fetch N times, print each answer
  labapp requests URL [--rate 200] [--seconds N] [--answers N] [--timeout D]
                                                     fetch at a steady rate, resolving the name each time: failures, the longest gap
                                                     and which pods answered, as JSON; for 0 seconds: until standard input ends; with answers:
                                                     until so many have arrived
  labapp resolve NAME [--type A] [--server IP] [--tcp] [--timeout D] [--until CODE]
                                                     one DNS query, without a search list: code and records (AAAA, SRV, TXT, SOA, PTR);
                                                     with a code: queries until it is the answer, and when that arrived
  labapp tcp HOST:PORT SIZE... [--timeout D]         send SIZE bytes to a TCP echo and check what comes back
  labapp udp HOST:PORT SIZE... [--timeout D]         the same in one datagram; --tries N for one that may be lost
  labapp ping HOST [SIZE...] [--count 3]             ICMP echo
  labapp raw PACKET...                               send IPv4 packets, in hexadecimal, as they are
  labapp stream HOST:PORT [--rate 100] [--seconds N] datagrams to a UDP echo: losses and the longest gap, as JSON;
                                                     for 0 seconds: until its standard input ends
  labapp flows HOST:PORT... [--udp 4] [--rate 100] [--size 64] [--tcp 20] [--control HOST:PORT]
                                                     UDP flows and TCP connections to echoes, each from a port of its own, and
                                                     what became of each, as JSON, when standard input ends; the control is
                                                     one more UDP flow, which takes no cable
  labapp ports HOST:PORT [--first 1024] [--count 1000] [--timeout D]
                                                     a datagram to a UDP echo from each of these ports, and how many come back, as JSON
  labapp serve-bench [:5201]                         the other end of bench
  labapp bench HOST:PORT [--seconds N] [--streams K] throughput (both ways) and round trip time, as JSON
  labapp ip                                          name and addresses
  labapp sleep                                       wait for a signal
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	commands := map[string]func(context.Context, []string) error{
		"web":         web,
		"get":         get,
		"requests":    requests,
		"resolve":     resolve,
		"tcp":         tcp,
		"udp":         udp,
		"ping":        ping,
		"raw":         raw,
		"stream":      stream,
		"flows":       flows,
		"ports":       ports,
		"serve-bench": serveBench,
		"bench":       bench,
		"ip":          func(context.Context, []string) error { fmt.Println(whoami()); return nil },
		"sleep": func(ctx context.Context, _ []string) error {
			<-ctx.Done()
			return nil
		},
	}
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"sleep"}
	}
	run, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(ctx, args[1:]); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Println("ERR", err) // on stdout: whoever runs kubectl exec reads that
		os.Exit(1)
	}
}

// split sorts options from the rest, so that they may come in any order ("get URL -n 3"). Every
// option has a value.
func split(args []string, options ...string) (rest []string, values map[string]string, err error) {
	values = map[string]string{}
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			rest = append(rest, args[i])
			continue
		}
		name, value, ok := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !slices.Contains(options, name) {
			return nil, nil, fmt.Errorf("no option %s here\n%s", args[i], usage)
		}
		if !ok {
			if i++; i == len(args) {
				return nil, nil, fmt.Errorf("option -%s has no value", name)
			}
			value = args[i]
		}
		values[name] = value
	}
	return rest, values, nil
}
