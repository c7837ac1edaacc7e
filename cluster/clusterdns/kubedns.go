package clusterdns

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/services"
)

const stubDomainsKey = "stubDomains"

// StubDomainAnnotation, on the ConfigMap of kube-dns, is the address in the stub domain that subctl
// has added: JSON has no comments.
const StubDomainAnnotation = "submariner.io/stub-domain"

// stubDomain returns our entry as text.
func stubDomain(address string) string { return fmt.Sprintf("%q: [%q]", services.Domain, address) }

// planStubDomains plans a change of the stub domains of kube-dns.
func (f *Facts) planStubDomains(h Hook, address string) Hook {
	h.Where = "ConfigMap kube-system/kube-dns"
	h.Stanza = stubDomainsKey + ": |\n  {" + stubDomain(address) + "}\n"
	commands := "add the stub domain to key " + stubDomainsKey + " of " + h.Where + ", whose value is JSON:\n" +
		stubDomain(address)
	if slices.Contains(f.Unreadable, h.Where) {
		return h.byHand("this user may not read "+h.Where, commands)
	}
	cm := f.StubDomains
	if cm == nil {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: system}}
	}
	text := cm.Data[stubDomainsKey]
	current, err := stubDomains(text)
	if err != nil {
		return h.byHand(fmt.Sprintf("key %s of %s stays as it is: %v", stubDomainsKey, h.Where, err), commands)
	}
	entry, found := current[services.Domain]
	ours := found && len(entry) == 1 && cm.Annotations[StubDomainAnnotation] == entry[0]
	switch {
	case found && slices.Equal(entry, []string{address}):
		h.State = Current
		h.Ours = ours
		return h
	case found && !ours:
		h.State = Others
		return h.byHand(fmt.Sprintf("somebody else has added the stub domain %s to %s: remove it", services.Domain,
			h.Where),
			commands)
	case found:
		h.State = Outdated
		text = withoutStubDomain(text)
	default:
		h.State = Missing
	}
	change := dataChange(cm, stubDomainsKey, withStubDomain(text, address))
	metav1.SetMetaDataAnnotation(&change.After.(*corev1.ConfigMap).ObjectMeta, StubDomainAnnotation, address)
	if f.StubDomains == nil {
		change.Before = nil
	}
	h.Changes = []Change{change}
	h.Ours = true
	return h
}

func stubDomains(text string) (map[string][]string, error) {
	out := map[string][]string{}
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("it is not JSON of stub domains: %w", err)
	}
	return out, nil
}

// withStubDomain adds our entry to a text, as the first one, so that the rest of the text stays.
func withStubDomain(text, address string) string {
	before, rest, found := strings.Cut(text, "{")
	entry := stubDomain(address)
	switch {
	case !found:
		return "{" + entry + "}"
	case strings.HasPrefix(strings.TrimSpace(rest), "}"):
		return before + "{" + entry + rest
	}
	return before + "{" + entry + ", " + rest
}

var stubDomainText = regexp.MustCompile(`"` + regexp.QuoteMeta(services.Domain) + `": \["[^"\\]*"\](, )?`)

// withoutStubDomain removes our entry. The rest of the text stays, unless somebody has written the
// entry in another form. It returns an empty text if there is no other entry.
func withoutStubDomain(text string) string {
	rest, err := stubDomains(text)
	if err != nil {
		return text
	}
	delete(rest, services.Domain)
	if len(rest) == 0 {
		return ""
	}
	next := stubDomainText.ReplaceAllString(text, "")
	if left, err := stubDomains(next); err == nil && equal(left, rest) {
		return next
	}
	b, err := json.Marshal(rest)
	if err != nil {
		return text
	}
	return string(b)
}

func equal(a, b map[string][]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || !slices.Equal(v, w) {
			return false
		}
	}
	return true
}

func (f *Facts) undoStubDomain(Hook) (Change, error) {
	if f.StubDomains == nil || f.StubDomains.Annotations[StubDomainAnnotation] == "" {
		return Change{}, nil
	}
	text := f.StubDomains.Data[stubDomainsKey]
	current, err := stubDomains(text)
	if err != nil {
		return Change{}, fmt.Errorf("key %s of ConfigMap kube-system/kube-dns stays as it is: %w", stubDomainsKey, err)
	}
	change := dataChange(f.StubDomains, stubDomainsKey, text)
	next := change.After.(*corev1.ConfigMap)
	if slices.Equal(current[services.Domain], []string{next.Annotations[StubDomainAnnotation]}) {
		change = dataChange(f.StubDomains, stubDomainsKey, withoutStubDomain(text))
		next = change.After.(*corev1.ConfigMap)
	}
	delete(next.Annotations, StubDomainAnnotation)
	return change, nil
}
