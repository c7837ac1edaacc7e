//go:build linux

package kernel

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// From linux/netfilter/nf_tables.h, which x/sys/unix does not have.
const (
	flowTableTable = 1 // NFTA_FLOWTABLE_TABLE
	flowTableName  = 2
	flowTableHook  = 3
	flowTableFlags = 7

	flowHookNum      = 1 // NFTA_FLOWTABLE_HOOK_NUM
	flowHookPriority = 2
	flowHookDevices  = 3
	flowDeviceName   = 1 // NFTA_DEVICE_NAME
)

// probeTimeout bounds the time in which the kernel loads modules and nft(8) answers.
const probeTimeout = 10 * time.Second

// FlowTables returns why this kernel gets no flow tables: it is not known to handle them, or does not take one. nil if it gets them.
func FlowTables(ctx context.Context) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("reading the version of the kernel: %w", err)
	}
	if err := knownFlowTables(unix.ByteSliceToString(u.Release[:])); err != nil {
		return err
	}
	return probeFlowTables(ctx)
}

// knownFlowTables returns why a release of Linux, as uname -r prints it, gets no flow tables; nil if it gets them: see docs/adr/0037-flow-table.md.
func knownFlowTables(release string) error {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(release, "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return fmt.Errorf("the version of the kernel, %q, is unknown", release)
	}
	version := [2]int{major, minor}
	switch {
	case slices.Compare(version[:], []int{5, 18}) < 0:
		return fmt.Errorf("Linux %s is older than 5.18: packets of a connection in a flow table could pass in clear beside a new IPsec tunnel", release)
	case slices.Compare(version[:], []int{6, 14}) >= 0, version == [2]int{6, 12} && patch >= 113:
		return fmt.Errorf("Linux %s ends connections in a flow table after 24 hours, as 6.14 and later and 6.12.113 and later do", release)
	}
	return nil
}

// probeFlowTables lets the kernel check a flow table and the rule that adds to it, which loads the modules that they need, without adding them. Older kernels
// refuse a flow table that takes the place of another one with the same device in one transaction.
func probeFlowTables(ctx context.Context) error {
	f := dataplane.FlowTable{Name: "probe"}
	const table = "flowtable inet subctl-probe probe"
	const hook = "{ hook ingress priority 0; devices = { lo }; }"
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nft", "-c", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`add table inet subctl-probe
add %[1]s %[2]s
delete %[1]s
add %[1]s %[2]s
add chain inet subctl-probe probe { type filter hook forward priority 10; }
add rule inet subctl-probe probe %[3]s
`, table, hook, f.Rule()))
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("trying a flow table (CONFIG_NF_FLOW_TABLE): %w: %s", err, strings.TrimSpace(problems.String()))
	}
	return nil
}

// flowTables returns the flow tables of the table.
func (s rulesets) flowTables() (out []dataplane.FlowTable, err error) {
	msgs, err := s.ask(unix.NFT_MSG_GETFLOWTABLE, true, flowTableTable)
	if err != nil {
		return nil, fmt.Errorf("listing flow tables: %w", err)
	}
	for _, m := range msgs {
		if f, table := flowTable(m); table == s.owner.Ruleset {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b dataplane.FlowTable) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// flowTable reads a flow table and the name of its table.
func flowTable(m []byte) (f dataplane.FlowTable, table string) {
	if m[0] != nfprotoInet {
		return f, ""
	}
	for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
		switch t {
		case flowTableTable:
			table = netlink.Text(v)
		case flowTableName:
			f.Name = netlink.Text(v)
		case flowTableFlags:
			f.Odd = f.Odd || binary.BigEndian.Uint32(v) != 0
		case flowTableHook:
			for t, v := range netlink.Attrs(v) {
				switch t {
				case flowHookNum, flowHookPriority: // NF_NETDEV_INGRESS is 0
					f.Odd = f.Odd || binary.BigEndian.Uint32(v) != 0
				case flowHookDevices:
					for t, v := range netlink.Attrs(v) {
						if t == flowDeviceName {
							f.Devices = append(f.Devices, netlink.Text(v))
						}
					}
				}
			}
		}
	}
	slices.Sort(f.Devices)
	return f, table
}

// From linux/netfilter/nfnetlink_conntrack.h, nf_conntrack_common.h and nf_conntrack_tcp.h, which x/sys/unix does not have.
const (
	ctaStatus   = 3
	inFlowTable = 1 << 14 // IPS_OFFLOAD
	maxAckSet   = 0x20    // IP_CT_TCP_FLAG_MAXACK_SET
)

// mostReset bounds how many connections one call of AcceptResets changes, and so its memory (some 100 bytes each).
const mostReset = 100_000

// AcceptResets makes connection tracking of the calling thread's network namespace believe resets of the TCP connections in flow tables. It compares the number of
// a reset with the last acknowledgement that it has seen. In a flow table it sees none: Linux 6.1 drops the reset of a connection of which more than 2 GiB have passed
// meanwhile. So it forgets the last acknowledgement, until the next packet that passes the rules. The kernel does not tell for which connections it has done so already.
// It returns an error if there are more of them than one call changes, or the context ends before.
func AcceptResets(ctx context.Context) error {
	conn, err := netlink.DialNetfilter()
	if err != nil {
		return err
	}
	defer conn.Close()
	forget := netlink.PutAttr(netlink.PutAttr(nil, ctaProtoInfoTCPFlagsOriginal, []byte{0, maxAckSet}), ctaProtoInfoTCPFlagsReply, []byte{0, maxAckSet})
	forget = netlink.PutAttr(nil, ctaProtoInfoTCP|unix.NLA_F_NESTED, forget)
	var changes [][]byte
	n := 0
	err = conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, netlink.NetfilterHeader(unix.AF_INET), func(entry []byte) {
		if !isFastTCP(entry) {
			return
		}
		if n++; n <= mostReset {
			changes = append(changes, netlink.PutAttr(sameEntry(entry), ctaProtoInfo|unix.NLA_F_NESTED, forget))
		}
	})
	for some := range slices.Chunk(changes, 1000) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			break
		}
		err = sendChanges(conn, ctNew, some)
	}
	if err == nil && n > mostReset {
		err = fmt.Errorf("there are more than %d", mostReset)
	}
	if err != nil {
		return fmt.Errorf("changing conntrack entries of TCP connections in flow tables: %w", err)
	}
	return nil
}

// isFastTCP reports whether a conntrack entry belongs to a TCP connection in a flow table.
func isFastTCP(entry []byte) bool {
	var status uint32
	var flow dataplane.Flow
	if len(entry) < unix.SizeofNlAttr {
		return false
	}
	for typ, v := range netlink.Attrs(entry[unix.SizeofNlAttr:]) {
		switch {
		case typ == ctaStatus && len(v) == 4:
			status = binary.BigEndian.Uint32(v)
		case typ == ctaTupleOrig:
			flow, _ = parseTuple(v)
		}
	}
	return status&inFlowTable != 0 && flow.Proto == protocol(unix.IPPROTO_TCP)
}
