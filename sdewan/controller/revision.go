package controller

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"subctl/sdewan"
)

// revision identifies the configuration of a pod: what a sync of the pod depends on, except what
// the pod itself answers.
type revision [sha256.Size]byte

// revisionOf returns the revision that a pod should have.
func (c cnf) revisionOf(services services) func(*corev1.Pod) revision {
	h := sha256.New()
	d := c.deployments[0]
	fmt.Fprintf(h, "%q %q\n", d.Annotations[UnmanagedAnnotation],
		d.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	for _, x := range c.rules {
		t := services.targets[x.GetUID()]
		fmt.Fprintf(h, "%s %d %v ", x.GetUID(), x.GetGeneration(), x.deleting())
		fmt.Fprintf(h, "%v %s %v\n", t.address, t.proto, t.err == nil)
	}
	of := [sha256.Size]byte(h.Sum(nil))
	return func(p *corev1.Pod) revision {
		annotation, has := p.Annotations[sdewan.NetworksAnnotation]
		return sha256.Sum256(fmt.Appendf(of[:], "%q %v", annotation, has))
	}
}
