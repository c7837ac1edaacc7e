package view

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"subctl/dataplane"
	"subctl/sdewan"
	"subctl/sdewan/cnf"
)

// Plan returns what the Linux of a pod of the CNF should hold: by the planner of the CNF, for the
// networks that the annotations of its pods name. All networks are up, all uplinks online except
// those in offline, and the kernel has IPsec.
func (v *View) Plan(c CNF, offline []string) (dataplane.State, []string) {
	config, problems := v.Config(c)
	w, err := world(c.Deployment.Spec.Template.Annotations, offline)
	if err != nil {
		problems = append(problems, err.Error())
	}
	state, report := cnf.Plan(config, w)
	for _, l := range report {
		problems = append(problems, l.String())
	}
	return state, problems
}

// clusterDevice is the device of a pod in the cluster's network, which Kubernetes' plugins call so.
const clusterDevice = "eth0"

// world returns what the annotations of a CNF's pods tell about their devices. What they do not
// tell is as usual: the default route leads to the cluster's network, whose addresses are unknown,
// and the kernel handles IPsec.
func world(annotations map[string]string, offline []string) (cnf.World, error) {
	attached, err := sdewan.ParseAttachments(annotations[sdewan.NetworksAnnotation])
	uplinks, uplinkErr := sdewan.ParseUplinks([]byte(annotations[sdewan.UplinksAnnotation]))
	errs := []error{err, uplinkErr}
	w := cnf.World{Default: clusterDevice, Now: time.Now(), IPsec: dataplane.Engine{Name: dataplane.EngineKernel}}
	for _, a := range attached {
		f := cnf.Interface{
			Name:    a.Device,
			Device:  a.Device,
			Gateway: a.Gateway,
			Up:      true,
			Online:  !slices.Contains(offline, a.Network),
		}
		if u, ok := uplinks[a.Network]; ok && u.Gateway.IsValid() {
			f.Gateway = u.Gateway
		}
		f.AddrsUnknown = !a.Address.IsValid() || a.Address.IsSingleIP()
		w.Interfaces = append(w.Interfaces, f)
		if a.Default {
			w.Default = a.Device
		}
		if a.Address.IsValid() {
			w.Addrs = append(w.Addrs, cnf.Addr{Device: a.Device, Prefix: a.Address})
			if a.Address.Bits() < a.Address.Addr().BitLen() {
				w.Routes = append(w.Routes,
					cnf.MainRoute{Dst: a.Address.Masked(), Device: a.Device, Src: a.Address.Addr()})
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
