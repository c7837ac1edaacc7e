package cnf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// This file plans policies and their rules: see uplink.go for what they lead to.

const (
	defaultSticky = 600   // seconds, as mwan3
	stickySources = 65536 // how many sources one rule remembers; more are not remembered
)

// smoothSlots is the greatest sum of weights up to which connections alternate between uplinks.
// Above it, each uplink gets its connections of a round in a row.
const smoothSlots = 64

// member is a member of a policy.
type member struct {
	uplink
	metric, weight int
	bad            bool // it exceeds a limit
}

// choose plans policies and rules.
func (p *plan) choose(ups []uplink) {
	members := map[string][]member{} // of the policies that are valid
	lastResort := map[string]string{}
	for _, policy := range p.config.Policies {
		ms := p.members(policy, ups)
		if len(ms) == 0 {
			p.problem(rest.Policies, policy.Name, "it has no member that is an uplink, so its rules have no effect")
			continue
		}
		members[policy.Name] = ms
		lastResort[policy.Name] = policy.LastResort
	}
	used := map[string]bool{}
	for _, r := range p.config.Rules {
		match, timeout, err := p.uplinkRule(r)
		if err != nil {
			p.problem(rest.Rules, r.Name, "%v", err)
			continue
		}
		ms, exists := members[r.Policy]
		switch {
		case exists && timeout > 0:
			p.sticky(r, ms, timeout, lastResort[r.Policy])
			p.table.add("uplink_new", r.Name, match, "goto", ident("sticky", r.Name))
		case exists:
			used[r.Policy] = true
			p.table.add("uplink_new", r.Name, match, "goto", ident("policy", r.Policy))
		case r.Policy == "default":
			p.table.add("uplink_new", r.Name, match, "goto uplink_use_none")
		case r.Policy == "unreachable" || r.Policy == "blackhole":
			p.table.add("uplink_new", r.Name, match, "goto uplink_use_"+r.Policy)
		default:
			p.problem(rest.Rules, r.Name, "policy %q does not exist, or has no uplink", r.Policy)
		}
	}
	for _, policy := range p.config.Policies {
		if used[policy.Name] {
			p.spread(ident("policy", policy.Name), policy.Name, best(members[policy.Name]), "uplink_use_",
				policy.LastResort)
		}
	}
}

// members returns the members of a policy that are uplinks.
func (p *plan) members(policy rest.Policy, ups []uplink) (out []member) {
	for _, m := range policy.Members {
		i := slices.IndexFunc(ups, func(u uplink) bool { return u.Name == m.Interface })
		if i < 0 {
			p.problem(rest.Policies, policy.Name,
				"member %q is no uplink: it is no network of the CNF, or has no gateway", m.Interface)
			continue
		}
		one := member{uplink: ups[i], bad: ups[i].Quality.Exceeds(m)}
		var err1, err2 error
		one.metric, err1 = number("metric", m.Metric, 1, rest.MaxMetric)
		one.weight, err2 = number("weight", m.Weight, 1, rest.MaxWeight)
		if err := errors.Join(err1, err2); err != nil {
			p.problem(rest.Policies, policy.Name, "member %q: %v", m.Interface, err)
			continue
		}
		out = append(out, one)
	}
	return out
}

// number parses a number from 1; unset is its value if the text is empty.
func number(field, text string, unset, most int) (int, error) {
	if text == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s %q is not a number from 1 to %d", field, text, most)
	}
	return n, nil
}

// best returns the members that are used: of the members that are online, and of these the good
// ones if there are any, those with the lowest metric.
func best(all []member) (out []member) {
	for _, m := range all {
		if !m.Online {
			continue
		}
		if len(out) == 0 || m.before(out[0]) {
			out = []member{m}
		} else if !out[0].before(m) {
			out = append(out, m)
		}
	}
	return out
}

// before reports whether a member is used rather than another one.
func (m member) before(o member) bool {
	if m.bad != o.bad {
		return o.bad
	}
	return m.metric < o.metric
}

// spread adds to a chain the choice between members. A connection that has one of them keeps it,
// unless it has dataplane.UplinkSpread. New connections are spread by a counter, so that the shares
// are exact. Without a member, they meet the last resort.
func (p *plan) spread(chain, note string, members []member, use, lastResort string) {
	switch len(members) {
	case 0:
		if lastResort = cmp.Or(lastResort, "unreachable"); lastResort == "default" {
			lastResort = "none"
		}
		p.table.add(chain, note, "goto uplink_use_"+lastResort)
		return
	case 1:
		p.table.add(chain, note, "goto", use+strconv.Itoa(members[0].number))
		return
	}
	sum := 0
	var weights []int
	var slots, keep []string
	for _, m := range members {
		weights = append(weights, m.weight)
		sum = sum + m.weight
		keep = append(keep, fmt.Sprintf("%#04x : goto %s%d", m.mark(), use, m.number))
	}
	p.table.add(chain, note, byConnection(dataplane.UplinkMask|dataplane.UplinkSpread, keep))
	if sum <= smoothSlots {
		for slot, i := range alternate(weights) {
			slots = append(slots, fmt.Sprintf("%d : goto %s%d", slot, use, members[i].number))
		}
	} else {
		from := 0
		for _, m := range members {
			slots = append(slots, fmt.Sprintf("%v : goto %s%d", span{from, from + m.weight - 1}, use, m.number))
			from += m.weight
		}
	}
	p.table.add(chain, note, fmt.Sprintf("numgen inc mod %d vmap { %s }", sum, strings.Join(slots, ", ")))
}

// span is a range of numbers, as nft(8) has it.
type span struct{ from, to int }

func (s span) String() string {
	if s.from == s.to {
		return strconv.Itoa(s.from)
	}
	return fmt.Sprintf("%d-%d", s.from, s.to)
}

// alternate returns, for as many turns as the sum of the weights, whose turn it is: as evenly as
// possible.
func alternate(weights []int) (out []int) {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	credit := make([]int, len(weights))
	for range sum {
		next := 0
		for i, w := range weights {
			if credit[i] += w; credit[i] > credit[next] {
				next = i
			}
		}
		credit[next] -= sum
		out = append(out, next)
	}
	return out
}

// sticky plans a rule whose sources keep their uplink, while it is online and each uses it again in
// time.
func (p *plan) sticky(r rest.Rule, all []member, timeout int, lastResort string) {
	name := ident("sticky", r.Name)
	use := name + "_use_"
	source := func(m member) string { return name + "_" + strconv.Itoa(m.number) }
	for _, m := range all {
		p.table.set(source(m))
	}
	chosen := best(all)
	for _, m := range chosen {
		p.table.add(name, r.Name, "ip saddr @"+source(m), "goto", use+strconv.Itoa(m.number))
		for _, o := range all {
			if o.number != m.number {
				p.table.add(use+strconv.Itoa(m.number), r.Name, fmt.Sprintf("delete @%s { ip saddr }", source(o)))
			}
		}
		p.table.add(use+strconv.Itoa(m.number), r.Name,
			fmt.Sprintf("update @%s { ip saddr timeout %ds }", source(m), timeout))
		p.table.add(use+strconv.Itoa(m.number), r.Name, "goto uplink_use_"+strconv.Itoa(m.number))
	}
	p.spread(name, r.Name, chosen, use, lastResort)
}

// uplinkRule returns the conditions of a rule, and how many seconds its sources are remembered, 0
// if they are not.
func (p *plan) uplinkRule(r rest.Rule) (match string, timeout int, err error) {
	var c conditions
	if c.family(r.Family); r.Family == "ipv6" {
		c.fail("family", errors.New("policies concern IPv4 only"))
	}
	if r.Family == "ipv4" {
		c.words = nil // these chains see nothing else
	}
	c.network("src_ip", "saddr", r.SrcIP)
	c.network("dest_ip", "daddr", r.DestIP)
	names, err := protocol(r.Proto, "all")
	if err != nil {
		c.errs = append(c.errs, err)
	} else {
		c.protocolsAndPorts(names, r.SrcPort, r.DestPort)
	}
	switch r.Sticky {
	case "", "0":
	case "1":
		if timeout, err = number("timeout", r.Timeout, defaultSticky, rest.MaxSeconds); err != nil {
			c.errs = append(c.errs, err)
		}
	default:
		c.fail("sticky", fmt.Errorf("%q is neither 0 nor 1", r.Sticky))
	}
	match, err = c.text()
	return match, timeout, err
}

// network is address, without a condition that every IPv4 packet meets.
func (c *conditions) network(field, direction, text string) {
	if n, err := parseNet(text); err == nil && n.Bits() == 0 {
		return
	}
	c.address(field, direction, text)
}
