//go:build linux

package iptables

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"subctl/dataplane/kernel/netlink"

	goiptables "github.com/coreos/go-iptables/iptables"
)

// program writes rules with go-iptables. It reads them with iptables-save, which prints those of
// all chains in one run: others have thousands.
type program struct {
	conn *netlink.Conn
	home netlink.Home

	mu   sync.Mutex
	tool *goiptables.IPTables // nil until it is looked for
	nft  bool                 // whether this iptables keeps its rules in nftables

	last []savedRule // what was saved last, and nftables' generation and signature then
	gen  uint32
	sig  string

	locked lockout
}

// savedRule is one line of iptables-save: a chain (without rule) or a rule.
type savedRule struct {
	table, chain string
	rule         string // as iptables-save spells it, without "-A CHAIN"; empty for the chain itself
}

// target returns the chain that the rule jumps or goes to.
func (r savedRule) target() string {
	f := strings.Fields(r.rule)
	for i := len(f) - 2; i >= 0; i-- {
		if f[i] == "-j" || f[i] == "-g" {
			return f[i+1]
		}
	}
	return ""
}

// look returns chains and rules, in order. The chains that the store observes are up to
// date; others may be older. No program is run if nothing has changed.
func (t *program) look() ([]savedRule, error) { return t.save(false) }

// fresh returns all chains and rules, up to date and in order.
func (t *program) fresh() ([]savedRule, error) { return t.save(true) }

func (t *program) save(fresh bool) ([]savedRule, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.probe(); err != nil {
		return nil, err
	}
	var gen uint32
	var sig string
	if t.nft {
		if gen = t.conn.Generation(); gen != 0 && gen == t.gen {
			return t.last, nil
		}
		if sig = signature(t.conn); !fresh && sig != "" && sig == t.sig {
			return t.last, nil
		}
	}
	out, err := t.run("iptables-save")
	if err != nil {
		return nil, err
	}
	t.last = parseSave(out)
	t.gen = 0
	t.sig = ""
	if t.nft && gen == t.conn.Generation() { // otherwise it changed meanwhile
		t.gen = gen
		t.sig = sig
	}
	return t.last, nil
}

// probe determines, once, which iptables the node has.
func (t *program) probe() error {
	if t.tool != nil {
		return nil
	}
	ipt, err := goiptables.New(goiptables.Timeout(lockPatience))
	if err != nil {
		return fmt.Errorf("looking for iptables: %w", err)
	}
	if a, b, c := ipt.GetIptablesVersion(); a < 1 || a == 1 && (b < 6 || b == 6 && c < 2) {
		return fmt.Errorf("iptables is version %d.%d.%d; 1.6.2 is the first that is supported", a,
			b, c)
	}
	out, err := t.run("iptables", "--version")
	if err != nil {
		return err
	}
	t.nft = strings.Contains(out, "nf_tables")
	t.tool = ipt
	return nil
}

// parseSave parses the output of iptables-save.
func parseSave(out string) (rules []savedRule) {
	table := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			rules = append(rules, savedRule{table: table, chain: chain})
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[len("-A "):], " ")
			rules = append(rules, savedRule{table, chain, rule})
		}
	}
	return rules
}

// write changes rules.
func (t *program) write(change func(*goiptables.IPTables) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.locked.check(); err != nil {
		return err
	}
	if err := t.home.Check(); err != nil {
		return err
	}
	err := explainLock(change(t.tool))
	t.locked.note(err)
	return err
}

func (t *program) run(name string, args ...string) (string, error) {
	if err := t.home.Check(); err != nil {
		return "", fmt.Errorf("running %s: %w", name, err)
	}
	cmd := exec.Command(name, args...)
	var out, problems bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running %s: %w: %s", name, err, &problems)
	}
	return out.String(), nil
}
