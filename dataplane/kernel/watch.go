//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"subctl/dataplane"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// setInterval is how often Watch counts the members of our sets: of ipsets, the
// kernel tells no news.
const setInterval = 250 * time.Millisecond

// watchBuffer holds the news of some thousand changes at once, as a first Sync
// makes. If there are more, Watch takes that as a change, too.
const watchBuffer = 1 << 20

// Watch sends a signal when something changed in the calling thread's network
// namespace that an owner's Observe, or ReadFacts, would tell of: however many
// changes there are, one signal at most in every quiet, and that long after the
// first of them. The channel is closed when ctx is done.
//
// What an agent changes itself is news as well. One more Sync follows, which
// finds nothing to do and so changes nothing: it ends there. What others do to
// their own devices, tables, chains and next hops is passed over.
//
// A signal is a reason to look, no more; that none came does not mean that all
// is well. Of the old (legacy) iptables the kernel tells no news, and members of
// a set that were swapped for as many others are not noticed. So look now and
// then, too.
func Watch(ctx context.Context, quiet time.Duration) (<-chan struct{}, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	f, err := newFilter(conn)
	if err != nil {
		conn.close()
		return nil, err
	}
	route, err := subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		conn.close()
		return nil, err
	}
	subscriptions := []*nl.NetlinkSocket{route}
	dirty := make(chan struct{}, 1)
	go receive(route, dirty, f.route)
	// A kernel without nftables has no news of it.
	if nft, err := subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES); err == nil {
		subscriptions = append(subscriptions, nft)
		go receive(nft, dirty, nftNews)
	}
	go func() {
		defer conn.close()
		countSets(ctx, conn, dirty)
		for _, s := range subscriptions {
			s.Close()
		}
	}()
	out := make(chan struct{}, 1)
	go coalesce(ctx, quiet, dirty, out)
	return out, nil
}

func subscribe(family int, groups ...uint) (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(family, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribing to netlink family %d: %w", family, err)
	}
	if err := s.SetReceiveBufferSize(watchBuffer, true); err != nil { // needs CAP_NET_ADMIN, as all the rest
		s.Close()
		return nil, fmt.Errorf("enlarging buffer of netlink family %d: %w", family, err)
	}
	return s, nil
}

// coalesce passes signals on, one at most in every quiet.
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

// signal sends, unless a signal is waiting: that one stands for this change, too.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// receive signals when a message matters, until the socket is closed.
func receive(s *nl.NetlinkSocket, dirty chan<- struct{}, matters func(syscall.NetlinkMessage) bool) {
	for {
		msgs, _, err := s.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			signal(dirty) // news was lost
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		case slices.ContainsFunc(msgs, matters):
			signal(dirty)
		}
	}
}

// countSets signals when there are other sets of ours than before, or one has
// more or fewer members, until ctx is done.
func countSets(ctx context.Context, c conn, dirty chan<- struct{}) {
	tick := time.NewTicker(setInterval)
	defer tick.Stop()
	last, _ := setCounts(c)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if now, err := setCounts(c); err == nil && now != last {
				last = now
				signal(dirty)
			}
		}
	}
}

// setCounts tells all sets of ours, and how many members each has.
func setCounts(c conn) (string, error) {
	var b strings.Builder
	for _, o := range dataplane.Owners() {
		s := sets{&Host{owner: o, conn: c}}
		names, err := s.names()
		if err != nil {
			return "", err
		}
		for _, name := range names {
			n, err := s.count(name)
			if err != nil && !gone(err) {
				return "", err
			}
			fmt.Fprintln(&b, name, n)
		}
	}
	return b.String(), nil
}
