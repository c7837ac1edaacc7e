package fabric

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"subctl/lab/plan"
)

// Cuts are elements of an nftables set in the fabric: (link a packet came in by, address it goes
// to). Packets are dropped where they enter the fabric, before it switches or routes them, so that
// one rule serves neighbours on a switch and clusters alike. The ends notice nothing but silence,
// as with a broken line elsewhere: links stay up. What goes the other way is another element.
const table = "subctl_lab"

// ensureCutRules makes the table. Its parts are added, never flushed: cuts survive another `up`.
func ensureCutRules() error {
	return nft(plan.FabricNetns, fmt.Sprintf(`
add table netdev %[1]s
add set netdev %[1]s cut { type ifname . ipv4_addr; }
`, table)+portRules(plan.Host))
}

// ensureCuttable lets a port be cut.
func ensureCuttable(p plan.Port) error { return nft(plan.FabricNetns, portRules(p)) }

func portRules(p plan.Port) string {
	return fmt.Sprintf(`
add chain netdev %[1]s in_%[2]s { type filter hook ingress device "%[2]s" priority 0; }
flush chain netdev %[1]s in_%[2]s
add rule netdev %[1]s in_%[2]s iifname . ip daddr @cut drop
`, table, p.Link)
}

// Cuts lists what is severed now.
func Cuts() ([]plan.Cut, error) {
	var out []byte
	err := In(plan.FabricNetns, func() (err error) {
		out, err = exec.Command("nft", "-j", "list", "set", "netdev", table, "cut").Output()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the cuts in the fabric: %w", withStderr(err))
	}
	return parseCuts(out)
}

func parseCuts(listing []byte) ([]plan.Cut, error) {
	var doc struct {
		Nftables []struct {
			Set struct {
				Elem []struct{ Concat []string }
			}
		}
	}
	if err := json.Unmarshal(listing, &doc); err != nil {
		return nil, fmt.Errorf("reading nft's listing: %w", err)
	}
	var cuts []plan.Cut
	for _, o := range doc.Nftables {
		for _, e := range o.Set.Elem {
			if len(e.Concat) == 2 {
				cuts = append(cuts, plan.Cut{Link: e.Concat[0], Addr: e.Concat[1]})
			}
		}
	}
	return plan.SortCuts(cuts), nil
}

// SetCuts makes these the cuts, all at once.
func SetCuts(cuts []plan.Cut) error {
	script := fmt.Sprintf("flush set netdev %s cut\n", table)
	if len(cuts) > 0 {
		var elements []string
		for _, c := range cuts {
			elements = append(elements, fmt.Sprintf("%q . %s", c.Link, c.Addr))
		}
		script += fmt.Sprintf("add element netdev %s cut { %s }\n", table, strings.Join(elements, ", "))
	}
	return nft(plan.FabricNetns, script)
}

// nft runs a script in a network namespace: all of it or nothing.
func nft(ns, script string) error {
	err := In(ns, func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = bytes.NewBufferString(script)
		_, err := cmd.Output()
		return err
	})
	if err != nil {
		return fmt.Errorf("writing nftables rules in %s: %w", ns, withStderr(err))
	}
	return nil
}

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
