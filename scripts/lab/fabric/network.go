package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"

	"subctl/lab/plan"
)

// EnsureNetwork makes the switch of a network.
func EnsureNetwork(n plan.Network) error {
	return In(plan.FabricNetns, func() error { return bridge(n.Bridge(), netip.Prefix{}) })
}

// Networks lists the networks.
func Networks() (networks []plan.Network, err error) {
	err = In(plan.FabricNetns, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if n, ok := plan.NetworkOf(l.Attrs().Name); ok {
				networks = append(networks, n)
			}
		}
		return err
	})
	slices.Sort(networks)
	return networks, err
}

// JoinNetwork connects a node to a network.
func JoinNetwork(node plan.Node, n plan.Network) error {
	if err := plug(n.NodePort(), node.Netns(), netip.Prefix{}, n.Port(node.Name())); err != nil {
		return err
	}
	if err := In(plan.FabricNetns, func() error { return join(n.Port(node.Name()), n.Bridge()) }); err != nil {
		return err
	}
	return In(node.Netns(), func() error {
		if err := bridge(n.InNode(), netip.Prefix{}); err != nil {
			return err
		}
		return errors.Join(join(n.NodePort(), n.InNode()), notFiltered(node))
	})
}

// notFiltered lets bridges pass packets on without the node's iptables, which know nothing of these
// networks. The bridge of flannel needs the opposite, for Services.
func notFiltered(node plan.Node) error {
	if node.Cluster.Flannel() != "" {
		return nil
	}
	err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// EnsureHost makes a host, and connects it to its networks.
func EnsureHost(h plan.OuterHost) error {
	networks, err := Networks()
	if err != nil {
		return err
	}
	for n := range h.Ports {
		if !slices.Contains(networks, n) {
			return fmt.Errorf("there is no network %q: lab network %s", n, n)
		}
	}
	if _, err := ensureNetns(h.Netns()); err != nil {
		return err
	}
	for n, addr := range h.Ports {
		if err := plug(string(n), h.Netns(), addr, h.Port(n)); err != nil {
			return err
		}
		if err := In(plan.FabricNetns, func() error { return join(h.Port(n), n.Bridge()) }); err != nil {
			return err
		}
	}
	return In(h.Netns(), func() error {
		errs := []error{up("lo"), forward()}
		for dst, via := range h.Routes {
			errs = append(errs, route(dst, via))
		}
		return errors.Join(errs...)
	})
}

// HasHost reports whether there is a host of this name.
func HasHost(name string) bool { return isNetns(filepath.Join(netnsDir, plan.HostNetns(name))) }

// RunInHost runs a program in the network namespace of a host, with this process's files and
// standard streams.
func RunInHost(ctx context.Context, name string, args []string) error {
	return In(plan.HostNetns(name), func() error {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdin = os.Stdin
		cmd.Stdout = os.Stdout
		cmd.Stderr = os.Stderr
		return cmd.Run()
	})
}
