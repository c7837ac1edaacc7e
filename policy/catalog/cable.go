package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"subctl/cable"
	"subctl/policy"
)

// Cable is the cable of a pair, or the reason why it has none.
type Cable struct {
	Driver   string
	Wanted   string       // the driver that should be used; the same as Driver if there is a cable
	Settings cable.Config // of the policy
	Policy   string       // the policy that decides; empty: the clusters' default driver
	Err      error        // the reason why there is no cable
	// MustEncrypt reports whether the pair must never be connected without encryption.
	MustEncrypt bool
}

// Connection is a pair with its cable.
type Connection struct {
	Pair  policy.Pair
	Cable Cable
}

// errApart is the reason why two clusters are no pair.
var errApart = errors.New("the two clusters have no clusterset in common")

// String returns the cable and the policy that decides, for a table.
func (c Cable) String() string {
	if c.Err != nil {
		return "none: " + c.Err.Error()
	}
	settings := ""
	for _, k := range slices.Sorted(maps.Keys(c.Settings)) {
		settings += fmt.Sprintf(", %s: %s", k, c.Settings[k])
	}
	return fmt.Sprintf("%s%s (%s)", c.Driver, settings, Decider(c.Policy))
}

// Encrypts reports whether there is a cable, and its packets are encrypted.
func (c Cable) Encrypts() bool {
	return c.Err == nil && policy.SecrecyOf(c.Driver) == policy.Encrypted
}

// MayNotBePlain reports whether the pair has a cable that encrypts, or should have one, or must
// not have another. A driver that is not known may encrypt.
func (c Cable) MayNotBePlain() bool {
	return c.MustEncrypt || c.Wanted != "" && policy.SecrecyOf(c.Wanted) != policy.Plain
}

// Same reports whether two cables are the same, whichever policies decided.
func (c Cable) Same(other Cable) bool {
	if c.Err != nil || other.Err != nil {
		return c.Err != nil && other.Err != nil && c.Err.Error() == other.Err.Error()
	}
	return c.Driver == other.Driver && maps.Equal(c.Settings, other.Settings)
}

// Agrees reports whether two catalogs specify the same cable for a pair, made by the same policy.
func (c Cable) Agrees(other Cable) bool {
	if c.Err != nil || other.Err != nil {
		return c.Err != nil && other.Err != nil
	}
	return c.Driver == other.Driver && c.Policy == other.Policy && maps.Equal(c.Settings, other.Settings)
}

// Decisions yields all pairs with their decisions, in the order of policy.Book.Pairs.
func (c *Catalog) Decisions(yield func(policy.Pair, policy.Decision) bool) {
	c.Book().Pairs(c.Clusters)(yield)
}

// CableOf returns the cable of a pair after a decision, if both clusters can have it.
func (c *Catalog) CableOf(pair policy.Pair, d policy.Decision) Cable {
	out := Cable{Wanted: d.Driver, Settings: d.Config, Policy: d.Policy, MustEncrypt: d.ForbidsPlain()}
	if out.Driver, out.Err = c.Cable(pair, d); out.Err == nil {
		out.Wanted = out.Driver
	}
	return out
}

// Connections returns all pairs of clusters that have a clusterset in common, with the cable that
// they should have.
func (c *Catalog) Connections() (out []Connection) {
	for pair, dec := range c.Decisions {
		out = append(out, Connection{Pair: pair, Cable: c.CableOf(pair, dec)})
	}
	return out
}

// CablesOf returns the cables that a cluster should have now, to each of the other clusters that
// the catalog knows. If the two have no clusterset in common, the cable has an error.
func (c *Catalog) CablesOf(id string) map[string]Connection {
	self, known := c.Cluster(id)
	if !known {
		return nil
	}
	book := c.Book()
	out := map[string]Connection{}
	for _, other := range c.Clusters {
		pair := policy.Pair{X: self, Y: other}
		if other.ID < id {
			pair = policy.Pair{X: other, Y: self}
		}
		switch {
		case other.ID == id:
		case !self.SharesSet(other):
			out[other.ID] = Connection{Pair: pair, Cable: Cable{Err: errApart}}
		default:
			out[other.ID] = Connection{Pair: pair, Cable: c.CableOf(pair, book.Decide(pair.X, pair.Y))}
		}
	}
	return out
}

// Apart returns why two clusters are no pair.
func (c *Catalog) Apart(p policy.Pair) error {
	for _, id := range []string{p.X.ID, p.Y.ID} {
		if _, known := c.Cluster(id); !known {
			return fmt.Errorf("cluster %s is not a member", id)
		}
	}
	return errApart
}

// Reoffered returns the clusters whose gateways offer other drivers, or other settings, in
// then.
func (c *Catalog) Reoffered(then *Catalog) map[string]bool {
	out := map[string]bool{}
	for id, was := range c.gateways {
		if is := then.gateways[id]; len(was) != len(is) || len(was) > 0 && &was[0] != &is[0] {
			out[id] = true
		}
	}
	for _, joining := range []*Catalog{c, then} {
		for id := range joining.joining {
			out[id] = true
		}
	}
	return out
}
