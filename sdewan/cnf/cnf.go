// Package cnf is our own CNF on plain Linux: it plans what the kernel of a CNF's pod should hold,
// from what the CNF's REST API has received.
//
// Plan is a pure function. Its results are an nftables table with the firewall, all translations
// and the choice of uplinks, the routing tables of the uplinks, and policy rules. Package
// sdewan/cnf/agent makes the pod hold them, and follows the uplinks; sdewan/cnf/server is the REST
// API.
package cnf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// maxUplinks is the maximum number of uplinks.
const maxUplinks = dataplane.MaxUplinks

// Plan returns what the kernel should hold, and what of the configuration it does not hold. Its
// first argument is in the order of creation, on which the result depends: the first of several
// rules that match decides.
func Plan(c rest.Config, w World) (dataplane.State, Report) {
	p := planOf(c, w)
	return p.state, p.report
}

func planOf(c rest.Config, w World) *plan {
	p := &plan{config: c, world: w, state: dataplane.State{}, origins: origins{}}
	p.safe()
	p.routes()
	p.policyRules()
	p.applications()
	p.ipsec()
	if p.runs("mwan3") {
		p.uplinks()
	}
	p.firewall()
	p.services()
	p.nats(true)
	p.zoneNAT()
	for _, h := range p.hidden { // after what the user has decided for their sources
		p.hide(h.note, h.translation)
	}
	p.nats(false)
	p.toCluster()
	p.control()
	if t, any := p.table.object(); any {
		p.put(t)
	}
	return p
}

// plan is a plan in the making.
type plan struct {
	config rest.Config
	world  World
	state  dataplane.State
	// origins are those of what is in the State for single objects.
	origins origins
	table   table
	zones   []*zone // in the order of creation
	ups     []uplink
	// nearby caches the result of connected, which is final as soon as all routes are planned; see
	// behindDefault.
	nearby []netip.Prefix
	// inCluster are the addresses in the cluster to which ports of the CNF lead, and hidden are the
	// redirects to such addresses.
	inCluster []netip.Prefix
	hidden    []hidden
	tunnels
	report Report
}

// put adds an object of the planner's own to the State. No two have the same key.
func (p *plan) put(o dataplane.Object) { p.state[o.Key()] = o }

// add adds an object to the State, for an object of the REST API. Two may ask for the same.
func (p *plan) add(l *rest.Collection, name string, o dataplane.Object) {
	if err := p.state.Add(o); err != nil {
		p.problem(l, name, "another object has another setting for the same: %v", p.state[o.Key()])
		return
	}
	p.origins.add(o.Key(), l, name)
}

// putFor adds an object of the planner's own to the State, on behalf of a Remote.
func (p *plan) putFor(r *rest.Remote, o dataplane.Object) {
	p.put(o)
	p.origins.add(o.Key(), rest.Remotes, r.Name)
}

// maxProblem is the maximum length of a message of the report, in bytes: an object can have very
// many mistakes.
const maxProblem = 2000

// problem adds a line to the report.
func (p *plan) problem(l *rest.Collection, name, format string, args ...any) {
	message := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	if len(message) > maxProblem {
		message = strings.ToValidUTF8(message[:maxProblem], "") + " …"
	}
	p.report = append(p.report, Line{Collection: l.String(), Name: name, Message: message})
}

// remark adds a line about a setting that only OpenWrt has.
func (p *plan) remark(l *rest.Collection, name, format string, args ...any) {
	p.problem(l, name, format, args...)
	p.report[len(p.report)-1].Minor = true
}

// runs reports whether a service has not been stopped.
func (p *plan) runs(service string) bool { return !slices.Contains(p.config.Stopped, service) }
