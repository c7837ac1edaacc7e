package cnf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"subctl/dataplane"
)

// table is the nftables table in the making. A chain or a set is in it as soon as something is
// added to it.
type table struct {
	chains map[string]*dataplane.RuleChain
	sets   map[string]dataplane.RuleSet
}

// base is a chain with a hook.
type base struct {
	name, typ, hook string
	priority        int
}

// The base chains, in the order in which a packet passes those of one hook. The priorities are the
// usual ones of nft(8), except that marks of the firewall are set just before uplinks are chosen,
// which looks at marks.
var bases = []base{
	{"raw_prerouting", "filter", "prerouting", -300},
	{"mark_prerouting", "filter", "prerouting", -151},
	{"uplink_prerouting", "filter", "prerouting", -150},
	{"nat_prerouting", "nat", "prerouting", -100},
	{"uplink_translated", "filter", "prerouting", -90},
	{"mark_input", "filter", "input", -150},
	{"fw_input", "filter", "input", 0},
	{"uplink_lost", "filter", "forward", -151},
	{"mark_forward", "filter", "forward", -150},
	{"mss_forward", "filter", "forward", -149},
	{"fw_forward", "filter", "forward", 0},
	{"mark_output", "route", "output", -151},
	{"uplink_output", "route", "output", -150},
	{"fw_output", "filter", "output", 0},
	{"mark_postrouting", "filter", "postrouting", -150},
	{"nat_postrouting", "nat", "postrouting", 100},
}

// chain returns a chain, which it adds if necessary.
func (t *table) chain(name string) *dataplane.RuleChain {
	if c := t.chains[name]; c != nil {
		return c
	}
	c := &dataplane.RuleChain{Name: name}
	if i := slices.IndexFunc(bases, func(b base) bool { return b.name == name }); i >= 0 {
		b := bases[i]
		c.Type = b.typ
		c.Hook = b.hook
		c.Priority = b.priority
	}
	if t.chains == nil {
		t.chains = map[string]*dataplane.RuleChain{}
	}
	t.chains[name] = c
	return c
}

// add appends a rule to a chain: words, of which empty ones do not count, on behalf of the object
// with a name.
func (t *table) add(chain, note string, words ...string) {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
	text := strings.Join(words, " ")
	if neverMatches(text) {
		return
	}
	for _, family := range []string{"meta nfproto ipv4 ", "meta nfproto ipv6 "} { // several conditions may have it
		if first, rest, is := strings.Cut(text, family); is {
			text = first + family + strings.ReplaceAll(rest, family, "")
		}
	}
	c := t.chain(chain)
	c.Rules = append(c.Rules, dataplane.TextRule{Text: text, Note: note})
}

// neverMatches reports whether conditions are about IPv6 packets with IPv4 addresses. nft(8)
// refuses such a rule, and with it the whole table.
func neverMatches(text string) bool {
	text = " " + text
	return strings.Contains(text, " meta nfproto ipv6") &&
		slices.ContainsFunc([]string{" ip saddr ", " ip daddr ", " meta nfproto ipv4"},
			func(s string) bool { return strings.Contains(text, s) })
}

// errNeverMatches is the error about a rule that a plan leaves out because of neverMatches.
var errNeverMatches = errors.New(
	"family: ipv6, but an address or a zone is of IPv4 only: leave out the family, or what is of IPv4")

// begin inserts a rule at the beginning of a chain, if the table has the chain.
func (t *table) begin(chain, rule string) {
	if c := t.chains[chain]; c != nil {
		c.Rules = slices.Insert(c.Rules, 0, dataplane.TextRule{Text: rule})
	}
}

// set adds a set.
func (t *table) set(name string) {
	if t.sets == nil {
		t.sets = map[string]dataplane.RuleSet{}
	}
	t.sets[name] = dataplane.RuleSet{Name: name, Type: "ipv4_addr", Flags: "dynamic,timeout", Size: stickySources}
}

// object returns the table as an object, if there is anything in it.
func (t *table) object() (r dataplane.Ruleset, any bool) {
	r.Family = dataplane.CNFRules.Family
	r.Table = dataplane.CNFRules.Name
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		r.Sets = append(r.Sets, t.sets[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		r.Chains = append(r.Chains, *t.chains[name])
	}
	return r, len(r.Chains) > 0
}

var plainName = regexp.MustCompile(`^[a-z0-9]{1,20}$`)

// ident returns a name for nftables, where names consist of letters, digits and '_', for what
// concerns the object with a name. Different objects have different ones: whatever is not plain is
// followed by a digest of the name.
func ident(kind, name string) string {
	if plainName.MatchString(name) {
		return kind + "_" + name
	}
	const most, digits = 20, 8
	short := []byte(strings.ToLower(name[:min(len(name), most)]))
	for i, c := range short {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			short[i] = '_'
		}
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s_%s_%s", kind, short, hex.EncodeToString(sum[:])[:digits])
}
