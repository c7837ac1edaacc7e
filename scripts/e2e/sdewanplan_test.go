//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// The nftables table that is planned from the API server alone is the one that the kernel of the
// pod holds: the same chains, with the same rules in the same order. nft(8) lists both: the planned
// one from a network namespace that has nothing else. Only the pod knows its address in the
// cluster's network, so that what is about it is not compared: the rules for the REST API, and
// which networks the pod is connected to; nor is the virtual address that it has from the other end
// of its tunnel. Routes and policy rules are not compared either. Protocols are numbers, as the pod
// has no /etc/protocols.
func sdewanPlanned(t *testing.T) {
	t.Helper()
	eventually(t, 40*time.Second, func() error { // the uplinks are online
		out, code := stdout(t, "subctl", "sdewan", "plan", "cnf-1", "--context", sdewanCluster)
		require.Zero(t, code, out)
		_, script, found := strings.Cut(out, "nft -f - <<'END'\n")
		require.True(t, found, out)
		script, _, found = strings.Cut(script, "\nEND\n")
		require.True(t, found, out)
		list := []string{
			"nft", "--numeric-protocol", "list", "table", dataplane.CNFRules.Family, dataplane.CNFRules.Name,
		}
		load := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", "nft -f - && "+strings.Join(list, " "))
		load.Stdin = strings.NewReader(script + "\n")
		listing, err := load.CombinedOutput()
		require.NoError(t, err, "%s\n%s", listing, script)
		planned := chainsOf(string(listing))
		held := chainsOf(inPod(t, "default", "edge", list...))
		for _, rule := range []string{
			"http-rule", "reject-80", "forwarding-lan-to-wan", "dnat-wan1", "snat-lan1", "cnfservice-sample",
		} {
			require.True(
				t,
				slices.ContainsFunc(planned,
					func(line string) bool { return strings.Contains(line, `comment "`+rule+`"`) }),
				"%s: %s",
				rule,
				planned,
			)
		}
		if !slices.Equal(planned, held) {
			return fmt.Errorf(
				"planned, and not in the kernel:\n%s\nin the kernel, and not planned, or in another order:\n%s",
				missing(planned, held), missing(held, planned))
		}
		return nil
	})
}

var (
	// in comments of the kernel: see dataplane.TextRule
	ruleDigest    = regexp.MustCompile(` ?#[0-9a-f]+"`)
	networksOfPod = regexp.MustCompile(`\{ [^{}]*127\.0\.0\.0/8[^{}]*\}`) // the networks of the pod
	virtualOfPod  = regexp.MustCompile(`172\.12\.0\.\d+, `)               // from the pool of the other end
	ofAPI         = regexp.MustCompile(
		`^iifname "eth0" ip daddr [0-9.]+ tcp dport \{ 80, 443 \} accept$|^meta mark & 0x20000000 == 0x20000000 accept$`)
)

// chainsOf returns the rules of a table as nft(8) lists it, each after the name of its chain.
func chainsOf(listing string) (rules []string) {
	chain := ""
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		if name, opens := strings.CutPrefix(line, "chain "); opens {
			chain = strings.TrimSuffix(name, " {")
			continue
		}
		if line == "}" {
			chain = ""
		}
		line = strings.TrimSuffix(ruleDigest.ReplaceAllString(line, `"`), ` comment ""`)
		line = virtualOfPod.ReplaceAllString(line, "")
		if line = networksOfPod.ReplaceAllString(line, "{ networks of the pod }"); chain != "" && line != "" &&
			!ofAPI.MatchString(line) {
			rules = append(rules, chain+": "+line)
		}
	}
	slices.SortStableFunc(rules, func(a, b string) int { // by chain, in which the order counts
		a, _, _ = strings.Cut(a, ": ")
		b, _, _ = strings.Cut(b, ": ")
		return strings.Compare(a, b)
	})
	return rules
}

// missing returns the lines of a that are not in b; all of a if there is none, as then the order
// differs.
func missing(a, b []string) string {
	out := slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
	if len(out) == 0 {
		out = a
	}
	return strings.Join(out, "\n")
}
