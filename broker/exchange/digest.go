package exchange

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// digest keeps the digest of the local objects of Free kinds until one of them changes.
type digest struct {
	versions []string // of the objects
	text     string
}

// of returns the digest of the local objects, given what was written in a pass that has
// read everything; empty if some of the objects were not yet as the clustersets have them.
// Changes that have to wait because their cluster makes too many, and objects that the API
// server rejects, do not count: no cluster can keep others from completing.
func (d *digest) of(kinds Table, local []client.Object, writes []Write) string {
	for _, w := range writes {
		if w.Set == "" && w.kind.Free != nil && w.kind.Free.Digest != nil && !w.rejected {
			return ""
		}
	}
	byKind, _ := kinds.split(local)
	var versions, texts []string
	for i, k := range kinds {
		if k.Free == nil || k.Free.Digest == nil {
			continue
		}
		for _, o := range byKind[i] {
			versions = append(versions, o.GetName(), string(o.GetUID()), o.GetResourceVersion())
		}
	}
	if d.text != "" && slices.Equal(d.versions, versions) {
		return d.text
	}
	for i, k := range kinds {
		if k.Free != nil && k.Free.Digest != nil {
			texts = append(texts, k.Free.Digest(byKind[i]))
		}
	}
	d.versions, d.text = versions, strings.Join(texts, " ")
	return d.text
}
