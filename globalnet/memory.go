package globalnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Rest is the time for which a freed address is not allocated again, unless no other address is
// left. It is longer than the time for which the kernel remembers connections that nobody ends: at
// most 180 s for UDP, and 120 s for a TCP connection that was closed. Until then, peers may send to
// the address and mean its previous holder.
const Rest = 5 * time.Minute

// Memory is the state that one allocation hands to the next. It is not changed.
type Memory struct {
	pool    pool
	used    *set               // addresses that somebody holds
	resting map[int]time.Time  // when addresses were freed, if they rest
	shadow  map[int]int        // addresses that a status has, or may have, and nobody holds
	pending map[string]pending // by UID
	holder  map[int]string     // the UIDs of the objects that hold addresses; empty after a restart
}

// pending holds the addresses that may be in the status of an object although the cache does not
// show them yet. A write succeeds only if nobody has changed the object since the version from
// which it was made. So once the cache shows another version, it also shows the write, or the write
// has failed.
type pending struct {
	version string
	written [][]netip.Addr // the newest last
}

// recordLimit is the most bytes of a record: a ConfigMap has at most 1 MiB.
const recordLimit = 512 << 10

// Record returns the addresses that are held or rest, as text: addresses, and ranges such as
// 242.0.0.1-242.0.0.8. If they would be too many, it has some more addresses, and fewer ranges.
func (m *Memory) Record() string {
	for gap := 0; ; gap = 2*gap + 1 {
		if text := m.record(gap); len(text) <= recordLimit {
			return text
		}
	}
}

// record returns the record in which up to gap addresses between two others count as used.
func (m *Memory) record(gap int) string {
	var b strings.Builder
	first := -1
	last := -1
	end := func() {
		if first < 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(m.pool.addr(first).String())
		if last > first {
			b.WriteString("-" + m.pool.addr(last).String())
		}
	}
	m.taken().each(nil, func(i int) {
		if first < 0 || i > last+1+gap {
			end()
			first = i
		}
		last = i
	})
	end()
	return b.String()
}

// taken returns the addresses that are held or rest.
func (m *Memory) taken() *set {
	out := m.used.clone()
	for i := range m.resting {
		out.add(i)
	}
	return out
}

// Recall returns the memory of an agent that starts, from the record of its predecessor: addresses
// in it that nobody holds are freed when the agent allocates for the first time.
func Recall(network netip.Prefix, record string) (*Memory, error) {
	m := &Memory{pool: newPool(network)}
	m.used = newSet(m.pool.size)
	var wrong []string
	for _, item := range strings.Fields(record) {
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		a, err := netip.ParseAddr(from)
		b, err2 := netip.ParseAddr(to)
		if err != nil || err2 != nil || !a.Is4() || !b.Is4() || b.Less(a) {
			wrong = append(wrong, item)
			continue
		}
		for i, end := m.pool.between(a, b); i < end; i++ { // none, if the cluster has another network now
			m.used.add(i)
		}
	}
	if len(wrong) > 0 {
		return m, fmt.Errorf("the record of used addresses has %q, which is neither an address nor a range", wrong[0])
	}
	return m, nil
}

// Recorded reports whether a record has all addresses that are held or rest, and whether it has
// others.
func (m *Memory) Recorded(record string) (all, others bool) {
	old, err := Recall(m.pool.network, record)
	taken := m.taken()
	return err == nil && old.used.covers(taken), err != nil || !taken.covers(old.used)
}

// Usage has the numbers of addresses of a network that are in use.
type Usage struct{ Size, Held, Resting int }

// Free returns how many addresses are left, including those that rest.
func (u Usage) Free() int { return u.Size - u.Held }

// Usage returns how many addresses are in use.
func (m *Memory) Usage() Usage {
	return Usage{Size: m.pool.size, Held: m.used.len(), Resting: len(m.resting)}
}

// rested returns the numbers of the addresses that rest, those that have rested longest first.
func rested(resting map[int]time.Time) []int {
	out := make([]int, 0, len(resting))
	for i := range resting {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b int) int {
		if c := resting[a].Compare(resting[b]); c != 0 {
			return c
		}
		return b - a
	})
	return out
}
