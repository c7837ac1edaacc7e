package agent

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// This file finds out which of the other clusters' gateways are what they say.

// readEndpoints sorts the endpoints into our own and those of others, and these into
// peers and refusals. Where two clusters claim the same, the one that held it before
// keeps it. What nobody held goes to the cluster that has been here longer; whether
// there is a cable to its gateway, or can be one, makes no difference.
func (v *view) readEndpoints() {
	since := map[string]int64{}
	for _, c := range List[*submarinerv1.Cluster](v.snap) {
		since[c.Spec.ClusterID] = c.CreationTimestamp.Unix()
	}
	var remote []*submarinerv1.Endpoint
	active := map[string]bool{}
	for _, e := range List[*submarinerv1.Endpoint](v.snap) {
		if v.isOwn(e) {
			active[e.Spec.Hostname] = true
			continue
		}
		remote = append(remote, e)
	}
	for _, n := range v.nodes {
		if active[n.Name] {
			v.active = append(v.active, n)
		}
	}
	slices.SortStableFunc(remote, func(a, b *submarinerv1.Endpoint) int {
		return cmp.Or(cmp.Compare(age(since, a), age(since, b)), strings.Compare(a.Spec.ClusterID, b.Spec.ClusterID))
	})
	sound := map[*submarinerv1.Endpoint]cable.Peer{}
	var peers []cable.Peer
	for _, e := range remote {
		v.try(e, func() error {
			p, err := v.sound(e)
			if err == nil {
				sound[e], peers = p, append(peers, p)
			}
			return err
		})
	}
	held := cable.NewClaims(v.nodes, drivers.All())
	v.keepHeld(held, peers)
	for _, e := range remote {
		p, ok := sound[e]
		if !ok {
			continue
		}
		v.try(e, func() error {
			if err := held.Announce(p); err != nil {
				return err
			}
			v.remote, v.held = append(v.remote, p), append(v.held, p.Gateway)
			c, err := v.connect(p)
			if err == nil {
				err = v.room(c)
			}
			if err == nil {
				err = held.Connect(c)
			}
			if err == nil {
				v.peers, v.specs[c.Name] = append(v.peers, c), e.Spec
			}
			return err
		})
	}
	slices.SortFunc(v.peers, func(a, b cable.Cable) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(v.refused, func(a, b refusal) int {
		return cmp.Or(strings.Compare(a.spec.CableName, b.spec.CableName), strings.Compare(a.spec.ClusterID, b.spec.ClusterID))
	})
}

// try does one step with an endpoint, and refuses it if that fails. What others publish
// must never stop this cluster, so one that runs into a mistake in subctl itself is
// refused too.
func (v *view) try(e *submarinerv1.Endpoint, step func() error) {
	defer func() {
		if r := recover(); r != nil {
			v.refused = append(v.refused, refusal{e.Spec, fmt.Errorf("subctl cannot handle it, which is a mistake in subctl: please report it: %v", r)})
		}
	}()
	if err := step(); err != nil {
		v.refused = append(v.refused, refusal{e.Spec, err})
	}
}

// sound makes a peer of another cluster's endpoint, or says what is wrong with it,
// whatever other clusters there are.
func (v *view) sound(e *submarinerv1.Endpoint) (cable.Peer, error) {
	g, err := cable.Parse(e.Spec)
	if err != nil {
		return cable.Peer{}, err
	}
	if owner := e.Labels[submarinerv1.ClusterIDLabel]; owner != g.Cluster {
		return cable.Peer{}, fmt.Errorf("it says it is of cluster %q, but cluster %q published it", g.Cluster, owner)
	}
	if g.Cluster == v.sub.Spec.ClusterID {
		return cable.Peer{}, errors.New("it claims this cluster's own ID")
	}
	return v.peer(g), cable.CheckRemote(g, v.own)
}

// keepHeld sets aside what the clusters held before, and this one's public address. One
// without an endpoint that is sound, say because its gateways change, keeps everything as
// long as it is a member.
func (v *view) keepHeld(c *cable.Claims, peers []cable.Peer) {
	here := map[string]bool{}
	for _, p := range peers {
		here[p.Cluster] = true
	}
	for _, g := range v.snap.Held {
		if !here[g.Cluster] && v.clusters[g.Cluster] != nil {
			peers, v.held = append(peers, cable.Peer{Gateway: g}), append(v.held, g)
		}
	}
	c.Keep(peers, v.snap.Held)
	for _, e := range List[*submarinerv1.Endpoint](v.snap) { // nor do we lose where others find us
		if ip, err := cable.ParseHost(e.Spec.PublicIP); err == nil && v.isOwn(e) {
			c.KeepAddress(ip)
		}
	}
}

// age is since when an endpoint's cluster is known here, in seconds since 1970; one
// that has not introduced itself is the youngest.
func age(since map[string]int64, e *submarinerv1.Endpoint) int64 {
	if t, ok := since[e.Spec.ClusterID]; ok {
		return t
	}
	return math.MaxInt64
}
