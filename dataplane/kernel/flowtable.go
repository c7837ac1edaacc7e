//go:build linux

package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"

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

// flowTables reports whether the kernel has flow tables. It looks once.
var flowTables = sync.OnceValue(func() bool { return probeFlowTables() == nil })

// probeFlowTables lets the kernel check a flow table and the rule that adds to it, which loads the modules that they need, without adding them.
func probeFlowTables() error {
	f := dataplane.FlowTable{Name: "probe"}
	cmd := exec.Command("nft", "-c", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table inet subctl-probe {
	flowtable probe { hook ingress priority 0; }
	chain probe { type filter hook forward priority 10; %s; }
}
`, f.Rule()))
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("trying a flow table: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	return nil
}

// flowTables returns the flow tables of the table. They are read each time, as the generation of nftables does not tell that the kernel has removed
// a device from one, because the device is gone.
func (s rulesets) flowTables() (out []dataplane.FlowTable, err error) {
	msgs, err := s.ask(unix.NFT_MSG_GETFLOWTABLE, true, flowTableTable)
	if err != nil {
		return nil, err
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
