package view

import (
	"fmt"
	"maps"
	"slices"

	"subctl/sdewan"
)

// Networks returns the networks of the CNF, NAME=DEVICE, in the order of its annotation.
func (c CNF) Networks() (out []string) {
	// Problems has the error
	attached, _ := sdewan.ParseAttachments(c.Deployment.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	for _, a := range attached {
		out = append(out, a.Network+"="+a.Device)
	}
	return out
}

// Problems returns what is wrong with a CNF itself, and what to do.
func (v *View) Problems(c CNF) (out []string) {
	d := c.Deployment
	same := 0
	for _, other := range v.CNFs {
		if other.Deployment.Namespace == d.Namespace && other.Purpose() == c.Purpose() {
			same++
		}
	}
	if same > 1 {
		out = append(
			out,
			fmt.Sprintf(
				"%d Deployments of the namespace have this purpose, so no rule is applied to any of them: delete all but one",
				same),
		)
	}
	labels := d.Spec.Template.Labels
	if labels[sdewan.PurposeLabel] != c.Purpose() {
		out = append(
			out,
			fmt.Sprintf("its pods do not have the label %s=%s of the Deployment: set it in spec.template",
				sdewan.PurposeLabel, c.Purpose()),
		)
	}
	if labels[sdewan.AccountLabel] == "" {
		out = append(
			out,
			fmt.Sprintf(
				"its pods have no label %s, so the controller has no password for them: set it to the name of a Secret with the key \"password\"",
				sdewan.AccountLabel),
		)
	}
	if labels[sdewan.CertLabel] == "" {
		out = append(
			out,
			fmt.Sprintf(
				"its pods have no label %s, so the controller does not trust them: set it to the name of a Secret with the key \"ca.crt\"",
				sdewan.CertLabel),
		)
	}
	annotations := d.Spec.Template.Annotations
	attached, networkErr := sdewan.ParseAttachments(annotations[sdewan.NetworksAnnotation])
	uplinks, uplinkErr := sdewan.ParseUplinks([]byte(annotations[sdewan.UplinksAnnotation]))
	for _, err := range []error{networkErr, uplinkErr} {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(uplinks)) {
		if networkErr == nil &&
			!slices.ContainsFunc(attached, func(a sdewan.Attachment) bool { return a.Network == name }) {
			out = append(
				out,
				fmt.Sprintf(
					"annotation %s has uplink %q, which is no network of its pods: correct the name, or add the network to annotation %s",
					sdewan.UplinksAnnotation, name, sdewan.NetworksAnnotation),
			)
		}
	}
	want := 1
	if d.Spec.Replicas != nil {
		want = int(*d.Spec.Replicas)
	}
	if n := len(c.Ready()); n < want {
		out = append(out, fmt.Sprintf("%d of %d pods are ready: rules are in sync when all are", n, want))
	}
	return out
}
