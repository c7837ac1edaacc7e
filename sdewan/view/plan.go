package view

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/sdewan"
	"subctl/sdewan/cnf"
)

// Plan returns what the Linux of a pod of the CNF should hold: by the planner of the CNF, for the networks that the annotations of
// its pods name. All networks are up, all uplinks online except those in offline, and the kernel has IPsec.
func (v *View) Plan(c CNF, offline []string) (dataplane.State, []string) {
	config, problems := v.Config(c)
	world, err := World(c.Deployment.Spec.Template.Annotations, offline)
	problems = append(problems, lines(err)...)
	state, report := cnf.Plan(config, world)
	for _, l := range report {
		problems = append(problems, l.String())
	}
	return state, problems
}

// World returns what the annotations of a CNF's pods tell about their devices.
func World(annotations map[string]string, offline []string) (cnf.World, error) {
	attached, err := sdewan.ParseAttachments(annotations[sdewan.NetworksAnnotation])
	uplinks, uplinkErr := sdewan.ParseUplinks([]byte(annotations[sdewan.UplinksAnnotation]))
	errs := []error{err, uplinkErr}
	w := cnf.World{IPsec: dataplane.Engine{Name: dataplane.EngineKernel}}
	for _, a := range attached {
		f := cnf.Interface{Name: a.Device, Device: a.Device, Gateway: a.Gateway, Up: true, Online: !slices.Contains(offline, a.Network)}
		if u, ok := uplinks[a.Network]; ok && u.Gateway.IsValid() {
			f.Gateway = u.Gateway
		}
		w.Interfaces = append(w.Interfaces, f)
		if a.Address.IsValid() {
			w.Addrs = append(w.Addrs, cnf.Addr{Device: a.Device, Prefix: a.Address})
			if a.Address.Bits() < a.Address.Addr().BitLen() {
				w.Routes = append(w.Routes, cnf.MainRoute{Dst: a.Address.Masked(), Device: a.Device, Src: a.Address.Addr(), Via: netip.Addr{}})
			}
		}
	}
	for _, name := range offline {
		if !slices.ContainsFunc(attached, func(a sdewan.Attachment) bool { return a.Network == name }) {
			errs = append(errs, fmt.Errorf("network %q: the CNF is not attached to it", name))
		}
	}
	return w, errors.Join(errs...)
}
