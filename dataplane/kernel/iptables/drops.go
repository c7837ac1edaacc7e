//go:build linux

package iptables

import (
	"fmt"
	"strconv"
	"strings"

	"subctl/dataplane"
)

// Drops returns how many packets the rules of the chains have dropped, by reason.
func (t *Tables) Drops() (map[string]uint64, error) {
	reasons := map[string]uint64{}
	if t.owner.Chains == "" {
		return reasons, nil
	}
	saved, err := t.program.look()
	if err != nil {
		return nil, err
	}
	read := map[string]bool{}
	for _, r := range saved {
		name := r.table + " " + r.chain
		if !t.owner.OwnsChain(r.chain) || dataplane.ChainDropReason(r.rule) == "" || read[name] {
			continue
		}
		read[name] = true
		out, err := t.program.counters(r.table, r.chain)
		if err != nil {
			return nil, fmt.Errorf("reading the counters of chain %s: %w", r.chain, err)
		}
		for line := range strings.Lines(out) {
			packets, counts := rulePackets(line)
			if reason := dataplane.ChainDropReason(strings.TrimSpace(line)); counts && reason != "" {
				reasons[reason] += packets
			}
		}
	}
	return reasons, nil
}

// rulePackets returns the packets that a rule has counted, in the notation of "iptables -v -S";
// false if the line is no rule.
func rulePackets(line string) (n uint64, counts bool) {
	_, after, ok := strings.Cut(line, " -c ")
	text, _, _ := strings.Cut(after, " ")
	n, err := strconv.ParseUint(text, 10, 64)
	return n, ok && err == nil
}
