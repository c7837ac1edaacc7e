//go:build linux

package kernel

import (
	"context"
	"syscall"
	"time"

	"subctl/dataplane/kernel/ike"
	"subctl/dataplane/kernel/iptables"
	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

// The intervals at which Watch looks for changes that the kernel does not report. A charon
// that dies interrupts cables. That somebody empties a set, or starts a charon in place of
// the agent, is rare, and an idle agent should have little to do.
const (
	pollCharon = 250 * time.Millisecond // the process of our strongSwan, while it runs
	pollRare   = time.Second            // the number of members of our sets; a strongSwan that does not run
)

// Watch sends a signal when something has changed, in the calling thread's network namespace, that
// an owner's Observe or ReadFacts would report. However many changes there are, it sends at most
// one signal in each interval quiet, and sends it that long after the first change. The channel is
// closed when ctx is done, or when the kernel's notifications can no longer be received.
//
// An agent's own changes are signalled as well. One more Sync follows, which finds nothing
// to do, and so there is no further signal. Changes that other programs make to their own
// devices, tables, chains and next hops are ignored.
//
// A signal is only a reason to look, and without a signal not everything need be well. The
// kernel does not report changes of the old (legacy) iptables, and members of a set that
// are replaced by as many others are not noticed. So observe from time to time, too.
func Watch(ctx context.Context, quiet time.Duration) (<-chan struct{}, error) {
	return watchFor(ctx, quiet, false)
}

// WatchNetwork is Watch, and also signals all changes that ReadNetwork would return: a CNF has its
// network namespace for itself.
func WatchNetwork(ctx context.Context, quiet time.Duration) (<-chan struct{}, error) {
	return watchFor(ctx, quiet, true)
}

func watchFor(ctx context.Context, quiet time.Duration, all bool) (<-chan struct{}, error) {
	conn, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	ns, err := netlink.Namespace()
	if err != nil {
		conn.Close()
		return nil, err
	}
	charon := ike.Charon(netlink.Home(ns))
	f, err := newFilter(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	route, err := netlink.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	dirty := make(chan struct{}, 1)
	notify := func() { signal(dirty) }
	var subscriptions []*netlink.Subscription
	receive := func(s *netlink.Subscription, matters func(syscall.NetlinkMessage) bool) {
		subscriptions = append(subscriptions, s)
		go func() {
			defer end()
			_ = s.Receive(matters, notify)
		}()
	}
	receive(route, func(m syscall.NetlinkMessage) bool { return f.route(m) || all && isNetwork(m) })
	// A kernel without nftables has no such family.
	if nft, err := netlink.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES); err == nil {
		receive(nft, nftNews)
	}
	go func() {
		defer conn.Close()
		poll(ctx, notify, func() int { pid, _ := charon.Process(); return pid },
			func() (string, error) { return iptables.SetCounts(conn) })
		for _, s := range subscriptions {
			s.Close()
		}
	}()
	out := make(chan struct{}, 1)
	go coalesce(ctx, quiet, dirty, out)
	return out, nil
}

// coalesce forwards signals, at most one in each interval quiet.
func coalesce(ctx context.Context, quiet time.Duration, in <-chan struct{}, out chan<- struct{}) {
	defer close(out)
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-in:
			if due == nil {
				due = time.After(quiet)
			}
		case <-due:
			due = nil
			signal(out)
		}
	}
}

// signal sends a signal, unless one is waiting already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// poll calls notify whenever the process ID of charon (0: does not run) or what sets returns
// has changed, until ctx is done. It has one timer for both: a wake-up costs more than what
// it then does.
func poll(ctx context.Context, notify func(), charon func() int, sets func() (string, error)) {
	process := charon()
	members, _ := sets()
	rare := time.Now().Add(pollRare)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := pollCharon
		if process == 0 {
			wait = pollRare
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if now := charon(); now != process {
			process = now
			notify()
		}
		if time.Now().Before(rare) {
			continue
		}
		rare = time.Now().Add(pollRare)
		if now, err := sets(); err == nil && now != members {
			members = now
			notify()
		}
	}
}
