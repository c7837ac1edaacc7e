package exchange

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// Memory is a cluster's record of other clusters, kept after their objects are gone, so that a
// broker cannot bring back an earlier version, grant or member. While there is a copy of an object,
// the signature of the copy states its age. Memory is bounded.
type Memory struct {
	// Administrator verified everything that is remembered. With another administrator's key,
	// nothing is.
	Administrator trust.PublicKey `json:"administrator"`
	// Last is the sequence number of the newest signature of this cluster.
	Last int64 `json:"last,omitempty"`
	// Grant is the newest grant of this cluster that the administrator has renewed on the broker.
	// It is empty if there is none.
	Grant string `json:"grant,omitempty"`
	// Clusters is by cluster ID; submarinerv1.BrokerID is the administrator.
	Clusters map[string]Record `json:"clusters,omitempty"`

	changed bool // by the methods; the maps are its own
}

// Record is the entry of a cluster in a Memory.
type Record struct {
	// Serial and Invited are fields of the oldest acceptable grant, and Revoked is the serial of
	// the last revocation.
	Serial  int64 `json:"serial,omitempty"`
	Invited int64 `json:"invited,omitempty"`
	Revoked int64 `json:"revoked,omitempty"`
	// Left is the time when the cluster has left, by its own clock, with the grant of Serial and
	// Invited. No grant until then is acceptable, and that grant is not acceptable either. Left is
	// 0 if the cluster has not left.
	Left int64 `json:"left,omitempty"`
	// Removed is by clusterset from which the administrator has removed the cluster: the serial of
	// the removal. No grant until then is acceptable there.
	Removed map[string]int64 `json:"removed,omitempty"`
	// Key is the cluster's key. What is below is about signatures of that key: with a new key, a
	// cluster starts anew.
	Key trust.PublicKey `json:"key,omitzero"`
	// Gone is the least acceptable sequence number of objects that have no copy here, by place.
	// Floor is the least one of all others: it grows when an entry of Gone is dropped.
	Gone  map[string]int64 `json:"gone,omitempty"`
	Floor int64            `json:"floor,omitempty"`
}

// grant returns the oldest acceptable grant, without what it grants.
func (r Record) grant() trust.Grant {
	return trust.Grant{Serial: r.Serial, Invited: r.Invited, Key: r.Key}
}

// atLeast makes grants that are older than g unacceptable, and what earlier keys have signed.
func (r *Record) atLeast(g trust.Grant) {
	if g.Compare(r.grant()) < 0 {
		return
	}
	if r.Key != g.Key && !r.Key.IsZero() {
		r.Gone = nil
		r.Floor = 0
	}
	if g.Compare(r.grant()) > 0 {
		r.Left = 0
	}
	r.Serial = g.Serial
	r.Invited = g.Invited
	r.Key = g.Key
}

// leave notes that the cluster has left, unless a later grant of the cluster is known.
func (r *Record) leave(l trust.Leaving) {
	if r.atLeast(l.Grant); l.Grant.Compare(r.grant()) == 0 {
		r.Left = max(r.Left, l.Time)
	}
}

// whyVoid returns why a grant of cluster id is void, or "". g is zero if no grant of the cluster is
// known.
func (r Record) whyVoid(id string, g trust.Grant) string {
	switch {
	case r.Revoked > 0 && trust.Revocation{Cluster: g.Cluster, Serial: r.Revoked}.Revokes(g):
		return "the grant of cluster " + id + " is revoked"
	case r.Left > 0 && g.Compare(r.grant()) <= 0:
		return "cluster " + id + " has left"
	}
	return ""
}

// Bounds of a Memory, which then has less than 1 MiB as JSON: a ConfigMap holds no more. There are
// more records than members of a broker.
const (
	maxGone      = 2048 // of all clusters together
	maxGoneOfOne = 64
	maxRecords   = 2500
	maxRemoved   = 1024 // of all clusters together
	maxPlace     = 64   // bytes of a place
)

// least returns the least acceptable sequence number of an object that has no copy.
func (r Record) least(place string) int64 {
	if least, ok := r.Gone[place]; ok {
		return least
	}
	return r.Floor
}

// own makes the maps of m its own before a change.
func (m *Memory) own() {
	if m.changed {
		return
	}
	m.changed, m.Clusters = true, maps.Clone(m.Clusters)
	if m.Clusters == nil {
		m.Clusters = map[string]Record{}
	}
	for id, r := range m.Clusters {
		r.Gone, r.Removed = maps.Clone(r.Gone), maps.Clone(r.Removed)
		m.Clusters[id] = r
	}
}

// forget records the least acceptable sequence number of an object that has no copy any more.
func (m *Memory) forget(id, place string, least int64) {
	m.change(id, func(r *Record) {
		if r.Gone == nil {
			r.Gone = map[string]int64{}
		}
		r.Gone[place] = max(r.least(place), least)
	})
}

// least returns the least acceptable sequence number of an object that has no copy.
func (m *Memory) least(id, place string) int64 { return m.Clusters[id].least(place) }

// change changes the record of a cluster.
func (m *Memory) change(id string, by func(*Record)) {
	m.own()
	r := m.Clusters[id]
	by(&r)
	m.Clusters[id] = r
}

// noteLeft remembers that a cluster has left, unless that, or a later grant of the cluster, is
// known.
func (m *Memory) noteLeft(id string, l trust.Leaving) {
	known := m.Clusters[id]
	if later := l.Grant.Compare(known.grant()); later > 0 || later == 0 && known.Left == 0 {
		m.change(id, func(known *Record) { known.leave(l) })
	}
}

// merge adds what another memory has, such as the one that another gateway has stored.
func (m *Memory) merge(o Memory) {
	if o.Administrator != m.Administrator {
		return
	}
	m.own()
	m.Last = max(m.Last, o.Last)
	if newerGrant(m.Administrator, o.Grant, m.Grant) {
		m.Grant = o.Grant
	}
	for id, other := range o.Clusters {
		m.change(id, func(r *Record) {
			r.leave(trust.Leaving{Grant: other.grant(), Time: other.Left})
			r.Revoked = max(r.Revoked, other.Revoked)
			for set, serial := range other.Removed {
				r.remove(set, serial)
			}
			if r.Key == other.Key || other.Key.IsZero() {
				r.addGone(other)
			}
		})
	}
}

// addGone adds what another record has about signatures of the same key. An entry of one of them
// may be part of the floor of the other, which then knows of a later version.
func (r *Record) addGone(other Record) {
	gone := map[string]int64{}
	for _, known := range []Record{*r, other} {
		for place := range known.Gone {
			gone[place] = max(r.least(place), other.least(place))
		}
	}
	if len(gone) > 0 {
		r.Gone = gone
	}
	r.Floor = max(r.Floor, other.Floor)
}

// trim keeps m within its bounds. It drops the oldest entries of the clusters with the most, and
// the records of the clusters about which the administrator has signed nothing for the longest
// time. The record of the broker stays.
func (m *Memory) trim() {
	m.trimRemoved()
	total := 0
	for id := range m.Clusters {
		m.drop(id, len(m.Clusters[id].Gone)-maxGoneOfOne)
		total += len(m.Clusters[id].Gone)
	}
	ids := slices.SortedFunc(maps.Keys(m.Clusters), func(a, b string) int {
		return len(m.Clusters[b].Gone) - len(m.Clusters[a].Gone)
	})
	for most := maxGoneOfOne; total > maxGone; most /= 2 {
		for _, id := range ids {
			over := min(len(m.Clusters[id].Gone)-most, total-maxGone)
			m.drop(id, over)
			total -= max(0, over)
		}
	}
	if len(m.Clusters) > maxRecords {
		newest := func(id string) int64 {
			if id == submarinerv1.BrokerID {
				return math.MaxInt64
			}
			return max(m.Clusters[id].grant().Authority(), m.Clusters[id].Revoked)
		}
		slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(newest(a), newest(b)) })
		for _, id := range ids[:len(m.Clusters)-maxRecords] {
			delete(m.Clusters, id)
		}
	}
}

// drop replaces the n oldest entries of a cluster by a higher floor.
func (m *Memory) drop(id string, n int) {
	if n <= 0 {
		return
	}
	r := m.Clusters[id]
	places := slices.SortedFunc(maps.Keys(r.Gone), func(a, b string) int { return cmp.Compare(r.Gone[a], r.Gone[b]) })
	for _, place := range places[:n] {
		r.Floor = max(r.Floor, r.Gone[place])
		delete(r.Gone, place)
	}
	m.Clusters[id] = r
}

// placeOf returns the place of an object in a Memory. set is its clusterset if every clusterset
// has a copy of its own, else empty. Others choose how long names are: a long place is a digest.
func (k *Kind) placeOf(set, name string) string {
	place := k.Name + "/" + name
	if set != "" {
		place = k.Name + "/" + set + "/" + name
	}
	if len(place) > maxPlace {
		return fmt.Sprintf("sha256/%x", sha256.Sum256([]byte(place)))[:maxPlace]
	}
	return place
}
