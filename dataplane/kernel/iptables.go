//go:build linux

package kernel

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	goiptables "github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"
)

// iptables runs iptables-save and iptables-restore. go-iptables finds the program
// and its version; rules go in by iptables-restore, because one run of iptables
// for each rule takes 5 ms, and a chain would be half done in between.
type iptables struct {
	conn  conn
	netns string // the namespace New was called in

	mu   sync.Mutex
	nft  bool   // the iptables that keeps its rules in nftables; known after the first look
	seen bool   // whether the first look was taken
	gen  []byte // generation of last
	last []savedRule
}

func newIPTables(c conn) (*iptables, error) {
	ns, err := threadNetns()
	if err != nil {
		return nil, err
	}
	return &iptables{conn: c, netns: ns}, nil
}

// threadNetns names the calling thread's network namespace.
func threadNetns() (string, error) {
	s, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", fmt.Errorf("looking for network namespace: %w", err)
	}
	return s, nil
}

// savedRule is one line of iptables-save: a chain (without rule) or a rule.
type savedRule struct {
	table, chain string
	rule         string // as iptables-save spells it, without "-A CHAIN"; empty for the chain itself
}

// target is the chain that the rule jumps or goes to.
func (r savedRule) target() string {
	f := strings.Fields(r.rule)
	for i := len(f) - 2; i >= 0; i-- {
		if f[i] == "-j" || f[i] == "-g" {
			return f[i+1]
		}
	}
	return ""
}

// save returns all chains and rules, in order. Nothing is run if the kernel says
// that nothing has changed since the last time.
func (t *iptables) save() ([]savedRule, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.probe(); err != nil {
		return nil, err
	}
	gen := t.generation()
	if gen != nil && bytes.Equal(gen, t.gen) {
		return t.last, nil
	}
	out, err := t.run("iptables-save", "")
	if err != nil {
		return nil, err
	}
	t.last, t.gen = parseSave(out), nil
	if bytes.Equal(gen, t.generation()) { // else it changed while we were reading
		t.gen = gen
	}
	return t.last, nil
}

// probe finds out once which iptables there is.
func (t *iptables) probe() error {
	if t.seen {
		return nil
	}
	ipt, err := goiptables.New()
	if err != nil {
		return fmt.Errorf("looking for iptables: %w", err)
	}
	if a, b, c := ipt.GetIptablesVersion(); a < 1 || a == 1 && (b < 6 || b == 6 && c < 2) {
		return fmt.Errorf("iptables is version %d.%d.%d; 1.6.2 is the first whose iptables-restore waits for others", a, b, c)
	}
	out, err := t.run("iptables-restore", "", "--version")
	if err != nil {
		return err
	}
	t.nft, t.seen = strings.Contains(out, "nf_tables"), true
	return nil
}

// generation is a number that changes with every change to nftables in this
// network namespace; nil if it does not tell of iptables, or is not known.
func (t *iptables) generation() []byte {
	if !t.nft {
		return nil
	}
	msgs, err := t.conn.request(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, nfgenmsg(unix.AF_UNSPEC))
	if err != nil || len(msgs) != 1 {
		return nil
	}
	for a, v := range attrs(msgs[0][4:]) {
		if a == unix.NFTA_GEN_ID {
			return bytes.Clone(v)
		}
	}
	return nil
}

// parseSave reads the output of iptables-save.
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

// restore makes changes, all of them or none.
func (t *iptables) restore(changes string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.run("iptables-restore", changes, "--noflush", "--wait")
	return err
}

func (t *iptables) run(program, stdin string, args ...string) (string, error) {
	if ns, err := threadNetns(); err != nil || ns != t.netns {
		return "", fmt.Errorf("running %s: the thread is in network namespace %s, and the objects are in %s (%w)", program, ns, t.netns, err)
	}
	cmd := exec.Command(program, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running %s: %w: %s%s", program, err, &problems, stdin)
	}
	return out.String(), nil
}
