package catalog

import (
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
)

// Reason explains the cable of a pair. Its JSON is the output of subctl cable-policy
// explain, and stays compatible.
type Reason struct {
	Clusters    [2]string `json:"clusters"`
	CableDriver string    `json:"cableDriver"` // empty: no cable
	// CableDriverReason is the reason why CableDriver is not the driver that was decided on; empty
	// if it is.
	CableDriverReason string   `json:"cableDriverReason"`
	Policy            string   `json:"policy"`      // empty: none decides
	Rule              int      `json:"rule"`        // counted from 1; 0: none decides
	MadeBy            string   `json:"madeBy"`      // cluster ID, or BROKER; empty: none decides
	ClusterSets       []string `json:"clusterSets"` // of the policy, that both clusters are in; empty: none decides
	Why               string   `json:"why"`
	Error             string   `json:"error"` // reason why there is no cable
	// EncryptionRequiredBy names the cluster or policy because of which the pair never gets a
	// cable without encryption; empty if there is none.
	EncryptionRequiredBy string `json:"encryptionRequiredBy"`

	Offers map[string][]string `json:"offers"`
	Beaten []Beaten            `json:"beaten"`
	// Defaults are the clusters' own default drivers, used where no policy matches.
	Defaults map[string]string `json:"defaultDrivers"`
	// InUse are the reports of the gateways of this cluster; empty if it is not one of the
	// two.
	InUse []Use `json:"inUse"`
	// NotObserved is the reason why InUse is empty; empty if it is not.
	NotObserved string `json:"notObserved"`
	// Differs reports whether a gateway reports something else than the cable above.
	Differs bool `json:"differs"`
}

// Beaten is a rule that matches the pair but does not decide.
type Beaten struct {
	Policy      string   `json:"policy"`
	ClusterSets []string `json:"clusterSets"` // sorted
	Rule        int      `json:"rule"`        // counted from 1
	CableDriver string   `json:"cableDriver"`
	Why         string   `json:"why"`
}

// Explain returns the cable of two clusters, with the reason.
func (c *Catalog) Explain(x, y policy.Cluster) Reason {
	e := c.Book().Explain(x, y)
	r := Reason{
		Clusters:             [2]string{x.ID, y.ID},
		Policy:               e.Policy,
		MadeBy:               e.Maker,
		ClusterSets:          append([]string{}, e.ClusterSets...),
		Why:                  e.Why,
		EncryptionRequiredBy: e.MustEncrypt,
		Offers:               map[string][]string{},
		Beaten:               []Beaten{},
	}
	if e.Policy != "" {
		r.Rule = e.Rule + 1
	}
	var err error
	pair := policy.Pair{X: x, Y: y}
	if r.CableDriver, err = c.Cable(pair, e.Decision); err != nil {
		r.Error = err.Error()
	} else {
		_, r.CableDriverReason = c.standIn(pair, e.Decision)
	}
	for _, id := range r.Clusters {
		if offered, hasGateway := c.Offers(id); hasGateway {
			r.Offers[id] = append([]string{}, offered...)
		}
	}
	r.Defaults = map[string]string{x.ID: cable.Canonical(x.Driver), y.ID: cable.Canonical(y.Driver)}
	r.InUse = append([]Use{}, c.UsesOf(x.ID, y.ID)...)
	r.NotObserved = c.NotObserved(x.ID, y.ID)
	r.Differs = slices.ContainsFunc(r.InUse, func(u Use) bool { return u.differs(r.CableDriver, e.Decision) })
	for _, b := range e.Beaten {
		r.Beaten = append(r.Beaten, Beaten{b.Policy, b.ClusterSets, b.Rule + 1, b.Driver, b.Why})
	}
	return r
}

// Rule returns the rule that decides; nil if none does.
func (c *Catalog) Rule(r Reason) *v1alpha1.CablePolicySpec {
	i := slices.IndexFunc(c.Policies, func(p *v1alpha1.CablePolicies) bool {
		isOfSet := func(set string) bool { return slices.Contains(r.ClusterSets, set) }
		return p.SharedName() == r.Policy && c.Maker(p) == r.MadeBy && r.Rule <= len(p.InForce()) &&
			slices.ContainsFunc(p.ClusterSets(), isOfSet)
	})
	if i < 0 || r.Rule == 0 {
		return nil
	}
	return &c.Policies[i].InForce()[r.Rule-1]
}
