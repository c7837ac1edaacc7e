package globalnet

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"subctl/internal/prefix"
)

// MaxNetworks is the most networks of a cluster: while it changes its network, it has two. The
// admission policies of the broker cannot check more.
const MaxNetworks = 2

// Entry records the global networks of a cluster: see Record. The fields cluster_id and global_cidr
// are upstream's.
type Entry struct {
	ClusterID string `json:"cluster_id"`
	// Networks are the networks of the cluster, the current one first. While a cluster changes its
	// network, it has the earlier one, too.
	Networks []netip.Prefix `json:"global_cidr"`
	// Account is the UID of the service account on the broker for which the entry was made. The
	// entry ends with that account. Without one, as upstream makes it, it stays.
	Account string `json:"account,omitempty"`
	// Expires is the time when the invitation expires for which the entry was made, in milliseconds
	// since 1970; 0 if a cluster made it when it joined.
	Expires int64 `json:"expires,omitempty"`
}

// Record has the global networks of all clusters of a broker.
type Record []Entry

// ParseRecord parses the value of ClusterInfoKey.
func ParseRecord(text string) (Record, error) {
	var r Record
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("it is not a list of clusters and their networks: %w", err)
	}
	for _, e := range r {
		for _, n := range e.Networks {
			if !n.IsValid() || n != n.Masked() {
				return nil, fmt.Errorf("cluster %.70q has %q, which is not a network", e.ClusterID, n)
			}
		}
	}
	return r, nil
}

// Format returns the record as the value of ClusterInfoKey, as upstream indents it.
func (r Record) Format() (string, error) {
	if r == nil {
		r = Record{}
	}
	text, err := json.MarshalIndent(r, "", "\t")
	return string(text), err
}

// Find returns the entry of a cluster; the zero Entry if it has none.
func (r Record) Find(cluster string) Entry {
	if i := slices.IndexFunc(r, func(e Entry) bool { return e.ClusterID == cluster }); i >= 0 {
		return r[i]
	}
	return Entry{}
}

// With returns the record with an entry in place of that of the same cluster, or without one if the
// entry has no network.
func (r Record) With(e Entry) Record {
	i := slices.IndexFunc(r, func(x Entry) bool { return x.ClusterID == e.ClusterID })
	switch out := slices.Clone(r); {
	case len(e.Networks) == 0:
		return slices.DeleteFunc(out, func(x Entry) bool { return x.ClusterID == e.ClusterID })
	case i < 0:
		return append(out, e)
	default:
		out[i] = e
		return out
	}
}

// NetworkRequest states which network a cluster asks for.
type NetworkRequest struct {
	Cluster string
	// Network is the network; the zero Prefix: any of Size addresses.
	Network netip.Prefix
	// Size is the number of addresses, which is rounded up to a power of two. 0: as many as the
	// cluster has or, if it has no network, the default.
	Size uint
	// Before is the network that the cluster had according to itself; it gets it again if it is
	// free.
	Before netip.Prefix
}

// Choose returns the network of a cluster. A cluster keeps its network unless it asks for another
// one. No result overlaps a network of another cluster in the record. A cluster that changes its
// network gets no third one.
func (i Info) Choose(r NetworkRequest, record Record) (netip.Prefix, error) {
	n, err := i.choose(r, record)
	if own := record.Find(r.Cluster).Networks; err == nil && len(own) >= MaxNetworks && !slices.Contains(own, n) {
		return netip.Prefix{}, fmt.Errorf(
			"cluster %q has not finished the change of its global network from %v to %v: finish it with subctl join --globalnet-cidr %[3]v, or undo it with subctl join --globalnet-cidr %[2]v, and change it to %[4]v then",
			r.Cluster, own[1], own[0], n)
	}
	return n, err
}

func (i Info) choose(r NetworkRequest, record Record) (netip.Prefix, error) {
	has := netip.Prefix{}
	if own := record.Find(r.Cluster).Networks; len(own) > 0 {
		has = own[0]
	}
	others := slices.DeleteFunc(slices.Clone(record), func(e Entry) bool { return e.ClusterID == r.Cluster })
	if r.Network.IsValid() {
		return r.Network, others.free(r.Network)
	}
	size := r.Size
	if size == 0 {
		if has.IsValid() {
			return has, nil
		}
		size = i.ClusterSize
	}
	// Addresses of global networks are IPv4: see ParseNetwork.
	length := Info{ClusterSize: size}.Bits()
	switch {
	case has.IsValid() && has.Bits() == length:
		return has, nil
	case r.Before.IsValid() && prefix.Covers([]netip.Prefix{i.Range}, r.Before) && others.free(r.Before) == nil &&
		(r.Size == 0 || r.Before.Bits() == length):
		return r.Before, nil
	}
	if half := i.Range.Bits() + 1; length < half {
		return netip.Prefix{}, fmt.Errorf(
			"a global network of %d addresses is more than half of the range %v of the broker: ask for at most %d with --globalnet-cluster-size, or %s",
			uint64(1)<<(32-length), i.Range, uint64(1)<<(32-half), i.enlarge(others, length))
	}
	if p, ok := others.firstFree(i.Range, length); ok {
		return p, nil
	}
	return netip.Prefix{}, fmt.Errorf(
		"no network of %d addresses is free in the range %v of the broker, in which %d clusters have networks: %s%s",
		uint64(1)<<(32-length), i.Range, others.in(i.Range), i.enlarge(others, length), others.smaller(i.Range, length))
}

// Bits returns the prefix length of a network of ClusterSize addresses, rounded up to a power of
// two.
func (i Info) Bits() int { return 32 - bits.Len(i.ClusterSize-1) }

// enlarge returns the remedy for a range that is too small: the command that enlarges it, so that
// it has a free network of the prefix length.
func (i Info) enlarge(others Record, length int) string {
	const command = "let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range "
	for n := min(i.Range.Bits(), length) - 1; n >= 1; n-- {
		larger := netip.PrefixFrom(i.Range.Addr(), n).Masked()
		if _, err := parseRange(larger.String()); err != nil {
			break
		}
		if _, ok := others.firstFree(larger, length); ok {
			return command + larger.String()
		}
	}
	return command + "NETWORK, or join with --globalnet-cidr, which may be outside the range"
}

// smaller tells which smaller size is free; empty if none is.
func (r Record) smaller(within netip.Prefix, length int) string {
	for l := length + 1; l <= 28; l++ {
		if _, ok := r.firstFree(within, l); ok {
			return fmt.Sprintf(", or join with --globalnet-cluster-size %d", uint64(1)<<(32-l))
		}
	}
	return ""
}

// free returns an error that names the cluster that has part of a network; nil if none has.
func (r Record) free(n netip.Prefix) error {
	for _, e := range r {
		for _, other := range e.Networks {
			if other.Overlaps(n) {
				return fmt.Errorf(
					"global network %v overlaps %v of cluster %q: choose another one, or omit --globalnet-cidr to get a free one",
					n, other, e.ClusterID)
			}
		}
	}
	return nil
}

// in returns how many clusters have networks in a range.
func (r Record) in(of netip.Prefix) (n int) {
	for _, e := range r {
		if prefix.Overlaps(e.Networks, of) {
			n++
		}
	}
	return n
}

// firstFree returns the first free network with a prefix length in a range.
func (r Record) firstFree(within netip.Prefix, length int) (netip.Prefix, bool) {
	var taken []netip.Prefix
	for _, e := range r {
		taken = append(taken, e.Networks...)
	}
	slices.SortFunc(taken, netip.Prefix.Compare)
	at := uint64(number(within.Addr()))
	end := at + uint64(1)<<(32-within.Bits())
	step := uint64(1) << (32 - length)
	for at+step <= end {
		p := netip.PrefixFrom(numbered(uint32(at)), length)
		i := slices.IndexFunc(taken, p.Overlaps)
		if i < 0 {
			return p, true
		}
		past := uint64(number(taken[i].Addr())) + uint64(1)<<(32-taken[i].Bits())
		at = max(at+step, (past+step-1)/step*step)
	}
	return netip.Prefix{}, false
}

// ParseNetwork parses the global network of a cluster, which may be outside the range of the
// broker: IPv4, a /8 or smaller, of at least 16 addresses, which must not have a special meaning.
func ParseNetwork(text string) (netip.Prefix, error) {
	what := fmt.Sprintf("global network %.80q", text)
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	switch {
	case err != nil || !p.Addr().Is4():
		return netip.Prefix{}, fmt.Errorf(
			"%s is not an IPv4 network: write it like 242.1.0.0/16, whose number of addresses is a power of two", what)
	case p.Masked() != p:
		return netip.Prefix{}, fmt.Errorf("%s does not start at a multiple of its size: did you mean %v?", what,
			p.Masked())
	case p.Bits() > 32-bits.Len(MinSize-1):
		return netip.Prefix{}, fmt.Errorf("%s is too small: a cluster needs at least %d addresses", what, MinSize)
	case p.Bits() < 8:
		return netip.Prefix{}, fmt.Errorf("%s is larger than any cluster: at most a /8 is accepted", what)
	}
	if no := special(p); no != "" {
		return netip.Prefix{}, fmt.Errorf("%s overlaps %s: use another one, such as 242.1.0.0/16", what, no)
	}
	return p, nil
}
