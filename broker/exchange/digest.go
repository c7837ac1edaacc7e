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

// of returns the digest of the local objects after what was written in a pass that has
// read everything; empty if some objects of any kind are not yet as the clustersets have them.
// Changes that have to wait because their cluster makes too many, and objects that the API
// server rejects, do not count: no cluster can keep others from completing.
func (d *digest) of(kinds Table, local []client.Object, writes []Write) string {
	byKind, _ := kinds.split(local)
	changes := make([][]Write, len(kinds))
	changed := false
	for _, w := range writes {
		switch {
		case w.Set != "" || w.rejected:
		case !w.done:
			return ""
		case w.kind.Free != nil && w.kind.Free.Digest != nil:
			i := kinds.index(w.Object)
			changed = true
			changes[i] = append(changes[i], w)
		}
	}
	if changed {
		for i := range kinds {
			byKind[i] = kinds[i].after(byKind[i], changes[i])
		}
		return kinds.digest(byKind) // the versions of the objects are not known yet
	}
	var versions []string
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
	d.versions = versions
	d.text = kinds.digest(byKind)
	return d.text
}

// digest returns the digest of the objects of each kind.
func (t Table) digest(byKind [][]client.Object) string {
	var texts []string
	for i, k := range t {
		if k.Free != nil && k.Free.Digest != nil {
			texts = append(texts, k.Free.Digest(byKind[i]))
		}
	}
	return strings.Join(texts, " ")
}

// after returns local objects of the kind as they are after writes of the Free way. It changes no
// object.
func (k *Kind) after(local []client.Object, writes []Write) []client.Object {
	if len(writes) == 0 {
		return local
	}
	written := map[string]Write{}
	for _, w := range writes {
		written[w.Object.GetName()] = w
	}
	var out []client.Object
	for _, o := range local {
		w, ok := written[o.GetName()]
		switch {
		case !ok:
			out = append(out, o)
		case w.Op == Report:
			o = o.DeepCopyObject().(client.Object)
			k.SetStatus(o, k.Status(w.Object))
			out = append(out, o)
		}
	}
	for _, w := range writes {
		if w.Op == Create || w.Op == Update {
			out = append(out, w.Object)
		}
	}
	return out
}
