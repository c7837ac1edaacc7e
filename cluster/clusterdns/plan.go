package clusterdns

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/services"
)

// Plan returns how the cluster's DNS gets to forward names of imported Services to address, the
// address of our DNS servers. If address is a placeholder, the plan is for people, and has no
// changes.
func Plan(f Facts, address string) Hook {
	h := Hook{State: Unknown}
	h.Kind, h.Manager = f.managed()
	at, err := f.site()
	h.Stanza = at.block(address)
	switch h.Kind {
	case OpenShift:
		h = f.planOperator(h, address)
	case KubeDNS:
		h = f.planStubDomains(h, address)
	case Custom:
		h = f.planCustom(h, address)
	case CloudDNS:
		h = h.byHand("it forwards no names to an address inside of the cluster", cloudDNSCommands)
	case Unmanaged:
		h = f.planUnmanaged(h)
	default:
		h = f.planCorefile(h, address)
		if err != nil && h.Changes != nil {
			h = h.byHand(err.Error(), byHand(h.Stanza))
		}
	}
	h.Notes = append(h.Notes, f.notes(h, address)...)
	if !isAddress(address) {
		h.Changes = nil
	}
	return h
}

// site returns the site of our block in the Corefile.
func (f *Facts) site() (site, error) {
	parsed, err := parse(f.text())
	if f.Corefile == nil || err != nil {
		return usual, nil // the error is planCorefile's
	}
	return parsed.site()
}

// look returns how a text with server blocks treats the domain, and the text with our block.
func look(text, block, address string) (state State, next string, err error) {
	parsed, err := parse(text)
	if err != nil {
		return Unknown, text, fmt.Errorf("it cannot be parsed: %w", err)
	}
	next, err = put(text, block)
	if err != nil {
		return Unknown, text, err
	}
	rest, err := cut(text)
	if err != nil {
		return Unknown, text, err
	}
	others, err := parse(rest)
	if err != nil {
		return Unknown, text, fmt.Errorf("it cannot be parsed: %w", err)
	}
	theirs, found := others.domain()
	switch {
	case found && rest != text:
		return Others, text, fmt.Errorf("it has another server block of %s besides the block of subctl: remove one of "+
			"them", services.Domain)
	case next == text:
		return Current, text, nil
	case rest != text:
		return Outdated, next, nil
	case parsed.multicluster():
		return Multicluster, text, nil
	case found && theirs.forwards(address):
		return Current, text, nil
	case found && strings.Contains(text, "lighthouse-start"):
		return Others, text, fmt.Errorf("Submariner's Lighthouse has a server block of %s in it: uninstall "+
			"Lighthouse, or "+
			"remove the lines from #lighthouse-start to #lighthouse-end", services.Domain)
	case found:
		return Others, text, fmt.Errorf("somebody else has a server block of %s in it: remove it", services.Domain)
	}
	return Missing, next, nil
}

// planCorefile plans a change of the Corefile itself.
func (f *Facts) planCorefile(h Hook, address string) Hook {
	h.Where = "ConfigMap " + client.ObjectKeyFromObject(f.Corefile).String()
	state, next, err := look(f.text(), h.Stanza, address)
	h.State = state
	h.Ours = strings.Contains(next, begin)
	switch {
	case err != nil:
		return h.byHand(fmt.Sprintf("key %s of %s stays as it is: %v", corefileKey, h.Where, err), byHand(h.Stanza))
	case h.Kind != Corefile && f.forwards(address): // in the form that a person has given it
		h.State = Current
		return h
	case next == f.text():
		return h
	case h.Kind == Corefile:
		h.Changes = []Change{dataChange(f.Corefile, corefileKey, next)}
		return h
	case h.Kind == EKSAddon:
		return h.byHand("EKS restores the Corefile of the add-on", f.addonCommands(next))
	case h.Kind == RKE2:
		return h.byHand("RKE2 restores the Corefile from the values of its chart", f.chartCommands(next, h.Stanza))
	}
	return h.byHand("it restores "+h.Where, byHand(h.Stanza))
}

// dataChange returns the change of one key of a ConfigMap; an empty text removes the key.
func dataChange(cm *corev1.ConfigMap, key, text string) Change {
	next := cm.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[key] = text
	if text == "" {
		delete(next.Data, key)
	}
	return Change{cm, next}
}

// planCustom plans a change of the ConfigMap with files that the Corefile imports.
func (f *Facts) planCustom(h Hook, address string) Hook {
	at, key, _ := f.custom()
	h.Where = "ConfigMap " + at.String()
	if slices.Contains(f.Unreadable, h.Where) {
		return h.byHand("this user may not read "+h.Where, byHand(h.Stanza))
	}
	cm := f.Custom
	if cm == nil {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: at.Name, Namespace: at.Namespace,
			Labels: map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy},
		}}
	}
	state, next, err := look(cm.Data[key], h.Stanza, address)
	h.State = state
	h.Ours = strings.Contains(next, begin)
	if err != nil {
		return h.byHand(fmt.Sprintf("key %s of %s stays as it is: %v", key, h.Where, err), byHand(h.Stanza))
	}
	main, elsewhere, err := f.elsewhere(key, address)
	switch {
	case err != nil:
		h.State = Others
		return h.byHand(err.Error(), byHand(h.Stanza))
	case elsewhere != Missing && state == Missing: // another file, or the Corefile, does it
		h.State = elsewhere
		h.Ours = false
		return h
	case next == cm.Data[key]:
		return h
	}
	change := dataChange(cm, key, next)
	if f.Custom == nil {
		change.Before = nil
	}
	h.Changes = append(main, change)
	return h
}

// elsewhere returns how the Corefile and the other files of the ConfigMap treat the domain. Our
// block in the Corefile is removed, because a server block must not exist twice.
func (f *Facts) elsewhere(key, address string) (changes []Change, state State, err error) {
	texts := map[string]string{}
	if f.Corefile != nil {
		rest, err := cut(f.text())
		if err != nil {
			return nil, Unknown, fmt.Errorf("key %s of ConfigMap %s: %w", corefileKey,
				client.ObjectKeyFromObject(f.Corefile), err)
		}
		if rest != f.text() {
			changes = append(changes, dataChange(f.Corefile, corefileKey, rest))
		}
		texts[corefileKey+" of ConfigMap "+client.ObjectKeyFromObject(f.Corefile).String()] = rest
	}
	if f.Custom != nil {
		suffix := strings.TrimPrefix(key, customFile)
		for k, text := range f.Custom.Data {
			if k != key && strings.HasSuffix(k, suffix) {
				texts[k+" of ConfigMap "+client.ObjectKeyFromObject(f.Custom).String()] = text
			}
		}
	}
	for _, where := range slices.Sorted(maps.Keys(texts)) {
		// A file of somebody else that cannot be parsed is not ours to judge.
		switch state, _, err := look(texts[where], "", address); state {
		case Others:
			return nil, Others, fmt.Errorf("key %s: %w", where, err)
		case Current, Multicluster:
			return changes, state, nil
		}
	}
	return changes, Missing, nil
}

// planUnmanaged plans for a cluster whose DNS servers are unknown.
func (f *Facts) planUnmanaged(h Hook) Hook {
	if len(f.Unreadable) > 0 {
		return h.byHand("this user may not read "+f.Unreadable[0], byHand(h.Stanza))
	}
	return h.byHand("there is neither ConfigMap kube-system/coredns nor another configuration that subctl knows",
		byHand(h.Stanza))
}

// Undo returns how everything is removed that Plan has added. Commands are for a person, where a
// distribution would restore it.
func Undo(f Facts) Hook {
	h := Hook{State: Missing}
	h.Kind, h.Manager = f.managed()
	var errs []error
	for _, change := range []func(Hook) (Change, error){
		f.undoCorefile, f.undoCustom, f.undoOperator,
		f.undoStubDomain,
	} {
		c, err := change(h)
		errs = append(errs, err)
		if c != (Change{}) {
			h.Changes = append(h.Changes, c)
		}
	}
	if err := errors.Join(errs...); err != nil {
		h.State = Unknown
		h.Reason = strings.ReplaceAll(err.Error(), "\n", "; ")
		h.Commands = "remove from it what forwards " + services.Domain
	} else if h.Kind == Unmanaged && len(f.Unreadable) > 0 && len(h.Changes) == 0 {
		h = h.byHand("this user may not read "+f.Unreadable[0], byHandOf(h))
	}
	f.remains(&h)
	return h
}

func (f *Facts) undoCorefile(h Hook) (Change, error) {
	if h.Kind == EKSAddon || h.Kind == RKE2 || h.Kind == Restored {
		return Change{}, nil // see remains
	}
	return f.undoText(f.Corefile, corefileKey)
}

// undoText removes our block from a key of a ConfigMap.
func (f *Facts) undoText(cm *corev1.ConfigMap, key string) (Change, error) {
	if cm == nil {
		return Change{}, nil
	}
	text := cm.Data[key]
	rest, err := cut(text)
	if err != nil {
		return Change{}, fmt.Errorf("key %s of ConfigMap %s stays as it is: %w", key, client.ObjectKeyFromObject(cm),
			err)
	}
	if rest == text {
		return Change{}, nil
	}
	return dataChange(cm, key, rest), nil
}

// undoCustom removes our file, and the ConfigMap if it is ours and has no other.
func (f *Facts) undoCustom(Hook) (Change, error) {
	_, key, found := f.custom()
	if !found {
		return Change{}, nil
	}
	c, err := f.undoText(f.Custom, key)
	if err != nil || c == (Change{}) {
		return c, err
	}
	next := c.After.(*corev1.ConfigMap)
	ours := next.Labels[submarinerv1.ManagedByLabel] == submarinerv1.ManagedBy
	if ours && len(next.Data) == 0 && len(next.BinaryData) == 0 {
		c.After = nil
	}
	return c, nil
}

// remains adds to the plan of Undo what only a person can remove.
func (f *Facts) remains(h *Hook) {
	has := func(cm *corev1.ConfigMap) bool {
		if cm == nil {
			return false
		}
		parsed, err := parse(cm.Data[corefileKey])
		_, found := parsed.domain()
		return err == nil && found
	}
	if (h.Kind == EKSAddon || h.Kind == RKE2 || h.Kind == Restored) && has(f.Corefile) {
		h.State, h.Reason = Current, h.Manager+" keeps the server block of "+services.Domain
		h.Commands = "remove it in the same way as it was added"
	}
	if has(f.NodeLocalConfig) {
		h.Notes = append(h.Notes, fmt.Sprintf("NodeLocal DNSCache has a server block of %s in ConfigMap %s: remove it",
			services.Domain, client.ObjectKeyFromObject(f.NodeLocalConfig)))
	}
}
