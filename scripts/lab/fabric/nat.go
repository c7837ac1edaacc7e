package fabric

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"subctl/lab/plan"
)

// A translated cluster is behind its switch's router as a home network is behind its: what its
// nodes send to others leaves with the router's address on that switch and with ports that they did
// not choose, and nobody but this machine gets in to a node, unless a node has asked first or the
// router forwards a port. The API server keeps its address, so that the lab keeps working.

// natTable is the nftables table of a translated cluster. There is one for each, so that ending the
// translation is deleting it.
func natTable(c plan.Cluster) string { return table + "_nat_" + c.Name() }

// Translate puts a cluster behind a translator that forwards these UDP ports to the cluster's first
// node.
func Translate(c plan.Cluster, forward []int) error {
	return nft(plan.FabricNetns, natRules(c, forward))
}

func natRules(c plan.Cluster, forward []int) string {
	rules := fmt.Sprintf(`
add table ip %[1]s
delete table ip %[1]s
add table ip %[1]s
add chain ip %[1]s out { type nat hook postrouting priority srcnat; }
add rule ip %[1]s out oifname != "%[2]s" ip saddr %[3]s ip saddr != %[4]s meta l4proto { tcp, udp } snat to %[5]s:20000-59999
add rule ip %[1]s out oifname != "%[2]s" ip saddr %[3]s ip saddr != %[4]s snat to %[5]s
add chain ip %[1]s behind { type filter hook forward priority filter; }
add rule ip %[1]s behind oifname "%[2]s" iifname != { "%[2]s", "%[6]s" } ip daddr != %[4]s ct direction original ct status & dnat == 0 drop
add chain ip %[1]s in { type nat hook prerouting priority dstnat; }
`, natTable(c), c.Bridge(), c.Gateway().Masked(), c.API().Addr.Addr(), c.Gateway().Addr(), plan.FabricUplink)
	for _, port := range forward {
		rules += fmt.Sprintf("add rule ip %s in iifname != %q ip daddr %s udp dport %d dnat to %s\n",
			natTable(c), c.Bridge(), c.Gateway().Addr(), port, plan.Node{Cluster: c, Number: 1}.Addr().Addr())
	}
	return rules
}

// StopTranslating ends it. Connections that went through it break.
func StopTranslating(c plan.Cluster) error {
	return nft(plan.FabricNetns, fmt.Sprintf("add table ip %[1]s\ndelete table ip %[1]s\n", natTable(c)))
}

// Translated reports which clusters are behind a translator.
func Translated(clusters []plan.Cluster) ([]plan.Cluster, error) {
	var out []byte
	err := In(plan.FabricNetns, func() (err error) {
		out, err = exec.Command("nft", "-j", "list", "tables", "ip").Output()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the translations in the fabric: %w", withStderr(err))
	}
	tables, err := parseTables(out)
	return slices.DeleteFunc(slices.Clone(clusters),
		func(c plan.Cluster) bool { return !slices.Contains(tables, natTable(c)) }), err
}

func parseTables(listing []byte) ([]string, error) {
	var doc struct {
		Nftables []struct{ Table struct{ Name string } }
	}
	if err := json.Unmarshal(listing, &doc); err != nil {
		return nil, fmt.Errorf("reading nft's listing: %w", err)
	}
	var names []string
	for _, o := range doc.Nftables {
		if strings.HasPrefix(o.Table.Name, table) {
			names = append(names, o.Table.Name)
		}
	}
	return names, nil
}

// SetMTU makes the ways between these clusters let through packets of no more than so many bytes,
// and say so by ICMP, as a narrow line somewhere between them would. Within a cluster nothing
// changes: a switch does not look at the size of what it passes on.
func SetMTU(clusters []plan.Cluster, mtu int) error {
	return In(plan.FabricNetns, func() error {
		var errs []error
		for _, c := range clusters {
			link, err := netlink.LinkByName(c.Bridge())
			if err == nil {
				err = netlink.LinkSetMTU(link, mtu)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("setting the MTU of %s: %w", c.Bridge(), err))
			}
		}
		return errors.Join(errs...)
	})
}
