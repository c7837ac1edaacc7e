package cable

import (
	"cmp"
	"hash/fnv"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// Weights of gateways, as users specify them. New flows are spread over the gateways of a cluster
// by weight.
const (
	DefaultWeight = 100
	MaxWeight     = 100
)

// Drain is the progress of a gateway on its way out of service. A lower value is preferred.
type Drain uint8

// The values of Drain.
const (
	// InService is a gateway that gets new flows.
	InService Drain = iota
	// Draining is a gateway that keeps the flows that it has. It gets new flows only by chance, or
	// where a kernel cannot tell new flows from old ones.
	Draining
	// Standby is a gateway that gets no packets while one with a lower value answers: another
	// gateway is the only active one of its cluster. Its cables are ready.
	Standby
	// Drained is a gateway that gets no packets while another gateway answers.
	Drained
)

// String returns d as objects have it; empty for InService.
func (d Drain) String() string {
	return [...]string{"", submarinerv1.Draining, submarinerv1.Standby, submarinerv1.Drained}[d]
}

// ParseDrain returns the Drain that a gateway announces as submarinerv1.BackendDrain; false if it
// is none.
func ParseDrain(text string) (Drain, bool) {
	for d := InService; d <= Drained; d++ {
		if text == d.String() {
			return d, true
		}
	}
	return InService, false
}

// way is a next hop to a gateway.
type way struct {
	hop     uint32
	weight  int // 0: the default
	drain   Drain
	down    bool // the gateway does not answer
	awaited bool // see Node.Awaited
}

// choose returns the ways that packets take: of those that answer, those with the lowest Drain. If
// these are in service, those that are draining keep their flows if keeps is set. None is withdrawn
// if no other is left.
func choose(all []way, keeps bool) []way {
	filter := func(ok func(way) bool) []way {
		return slices.DeleteFunc(slices.Clone(all), func(w way) bool { return !ok(w) })
	}
	inService := func(w way) bool { return w.drain == InService }
	chosen := filter(func(w way) bool { return !w.down && (inService(w) || keeps && w.drain == Draining) })
	if slices.ContainsFunc(chosen, inService) {
		return chosen
	}
	chosen = nil
	for d := Draining; d <= Drained && len(chosen) == 0; d++ {
		chosen = filter(func(w way) bool { return !w.down && w.drain == d })
	}
	if len(chosen) == 0 {
		chosen = filter(inService)
	}
	if len(chosen) == 0 {
		chosen = slices.Clone(all)
	}
	for i := range chosen {
		chosen[i].drain = InService // they get all flows
	}
	return chosen
}

// maxShare is the greatest weight of a member of a group in the kernel.
const maxShare = 256

// members returns the members of a group. Their weights have no common divisor, unless one is
// draining: its weight is then 1, and the others have the greatest weights that the kernel allows.
func members(ways []way) []dataplane.Member {
	var out []dataplane.Member
	most := 0
	common := 0
	draining := false
	for _, w := range ways {
		if w.drain != InService {
			draining = true
			continue
		}
		n := cmp.Or(w.weight, DefaultWeight)
		most = max(most, n)
		common = gcd(n, common)
	}
	for _, w := range ways {
		m := dataplane.Member{ID: w.hop, Weight: 1}
		if n := cmp.Or(w.weight, DefaultWeight); w.drain == InService && draining {
			m.Weight = max(1, n*maxShare/most)
		} else if w.drain == InService {
			m.Weight = n / common
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b dataplane.Member) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b dataplane.Member) bool { return a.ID == b.ID })
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// group returns a group of the ways.
func group(id uint32, ways []way) dataplane.Group {
	return dataplane.Group{ID: id, Members: members(ways)}
}

// singleWay returns a single way.
func singleWay(hop uint32) []way { return []way{{hop: hop}} }

// addResilient adds to s a resilient group of next hops that s has. Its ID must not be that of a
// plain group: the kernel cannot change the type of a group, and so the routes move from one group
// to the other.
//
// Groups of a single gateway are resilient, too: the kernel knows then which buckets are in use
// when there is a second gateway.
//
// Each next hop has a twin, so that the group has two members when one gateway is left. The kernel
// does not hash to a single member, and all of its buckets count as idle: when a second gateway
// returned, half of the flows would move to it.
//
// A gateway that is draining has the least weight, so it has more buckets than it should: the
// kernel moves those without packets to the others, and leaves the rest where they are.
//
// all are the ways that the group could have. All twins exist, so that a gateway comes and goes by
// one message to the kernel.
func addResilient(s dataplane.State, id uint32, all, ways []way, buckets int) error {
	for _, w := range all {
		hop, _ := s[dataplane.Nexthop{ID: w.hop}.Key()].(dataplane.Nexthop) // planned with the cable
		hop.ID = twin(w.hop)
		if err := s.Add(hop); err != nil {
			return err
		}
	}
	both := slices.Clone(ways)
	for _, w := range ways {
		if w.hop>>24 != dataplane.SiblingNexthopID { // a detour
			w.hop = twin(w.hop)
			both = append(both, w)
		}
	}
	g := group(id, both)
	g.Buckets = buckets
	g.Idle = dataplane.BucketIdle
	return s.Add(g)
}

// twin returns the ID of the twin of a next hop.
func twin(hop uint32) uint32 { return hop | dataplane.TwinNexthop<<24 }

// addGroup adds the next hop group of a remote cluster, and returns its ID: the gateways that
// answer (see choose), or else the siblings that have a way to the cluster. If there are none
// either, it is all gateways: the last path is never withdrawn.
func (c Cabling) addGroup(s dataplane.State, id uint32, cluster string, r remote) (uint32, error) {
	ways := choose(r.ways, c.Local.Resilient)
	if !slices.ContainsFunc(ways, func(w way) bool { return !w.down }) {
		detours, err := c.siblingHops(s, cluster)
		if err != nil {
			return 0, err
		}
		if len(detours) > 0 {
			ways = choose(detours, false)
		}
	}
	if !c.Local.Resilient {
		return id, s.Add(group(id, ways))
	}
	id = dataplane.ResilientCableGroupID<<24 | id&groupMask
	return id, addResilient(s, id, r.ways, ways, dataplane.CableBuckets)
}

// groupMask is the part of an ID that distinguishes groups of the same kind.
const groupMask = 1<<24 - 1

// groupIDs returns the ID of each cluster's next hop group: 24 bits of a hash of the cluster ID,
// incremented on a collision. A cluster's ID does not depend on its gateways or, except for
// collisions (one pair in 16 million), on other clusters. On a collision, the cluster that comes
// first keeps its ID: a cluster can choose its own ID so that it collides with another one.
func groupIDs(clusters []string) map[string]uint32 {
	ids := map[string]uint32{}
	taken := map[uint32]bool{}
	for _, c := range clusters {
		if _, twice := ids[c]; twice {
			continue
		}
		h := fnv.New32a()
		h.Write([]byte(c)) // never fails
		id := h.Sum32() & groupMask
		for taken[id] {
			id = (id + 1) & groupMask
		}
		taken[id] = true
		ids[c] = dataplane.CableGroupID<<24 | id
	}
	return ids
}
