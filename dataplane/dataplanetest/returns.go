package dataplanetest

import (
	"regexp"
	"strconv"
	"strings"

	"subctl/dataplane"
)

// ReturnGateway is a gateway of the own cluster in the rules of the return path: see
// cable/rules_return.go.
type ReturnGateway struct {
	MAC    string
	Mark   uint32
	Chosen bool // new connections of the node choose it
	Down   bool // connections through it choose again
}

var returnGateway = regexp.MustCompile(`^ether saddr (\S+) ct mark and 0x3f == (0x[0-9a-f]+) accept$`)

// ReturnGateways returns the gateways in the return path of a State.
func ReturnGateways(s dataplane.State) (out []ReturnGateway) {
	table, _ := s[dataplane.RulesetKey(dataplane.ReturnsTable.Family, dataplane.ReturnsTable.Name)].(dataplane.Ruleset)
	rules := map[string][]string{}
	for _, c := range table.Chains {
		for _, r := range c.Rules {
			rules[c.Name] = append(rules[c.Name], r.Text)
		}
	}
	has := func(chain, mark string, words string) bool {
		for _, r := range rules[chain] {
			if strings.Contains(" "+r+" ", mark+" ") && strings.Contains(r, words) {
				return true
			}
		}
		return false
	}
	for _, r := range rules["arrived"] {
		m := returnGateway.FindStringSubmatch(r)
		if m == nil {
			continue
		}
		mark, _ := strconv.ParseUint(m[2], 0, 32) // digits, as the expression has it
		out = append(out, ReturnGateway{
			MAC: m[1], Mark: uint32(mark), Chosen: has("choose", "xor "+m[2], "ct mark set"),
			Down: has("output", "== "+m[2], "ct direction original"),
		})
	}
	return out
}
