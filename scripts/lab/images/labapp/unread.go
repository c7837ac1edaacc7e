package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// unread prints how many datagrams the kernel has dropped in this network namespace because their sockets were full. A program that gets no
// processor for long enough loses them, whatever the network does.
func unread(context.Context, []string) error {
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		if i := slices.Index(names, "RcvbufErrors"); i > 0 && i < len(fields) {
			fmt.Println(fields[i])
			return nil
		}
	}
	return errors.New("/proc/net/snmp does not tell")
}
