package clusterdns

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"subctl/services"
)

// serverName is the name of our server in the configuration of OpenShift's operator.
const serverName = "submariner"

// operatorServer is our server there.
func operatorServer(address string) map[string]any {
	return map[string]any{
		"name":          serverName,
		"zones":         []any{services.Domain},
		"forwardPlugin": map[string]any{"upstreams": []any{address}},
	}
}

// planOperator plans a change of the configuration of OpenShift's operator.
func (f *Facts) planOperator(h Hook, address string) Hook {
	h.Where = "DNS.operator.openshift.io default"
	entry := operatorServer(address)
	h.Stanza = asYAML(map[string]any{"spec": map[string]any{"servers": []any{entry}}})
	commands := "add this to it with kubectl edit dns.operator.openshift.io default:\n" + h.Stanza
	servers, ours, err := f.servers()
	if err != nil {
		return h.byHand(err.Error(), commands)
	}
	if ours < 0 {
		theirs := func(s any) bool { return slices.ContainsFunc(zones(s), isDomain) }
		if i := slices.IndexFunc(servers, theirs); i >= 0 {
			h.State = Others
			name, _, _ := unstructured.NestedString(servers[i].(map[string]any), "name")
			return h.byHand(fmt.Sprintf("the server %q in %s has the zone %s: remove it", name, h.Where,
				services.Domain),
				commands)
		}
		h.Ours = true
		h.State = Missing
		h.Changes = []Change{f.operatorChange(append(servers, entry))}
		return h
	}
	current := servers[ours].(map[string]any)
	upstreams, _, _ := unstructured.NestedStringSlice(current, "forwardPlugin", "upstreams")
	h.State = Current
	h.Ours = true
	if !slices.Equal(upstreams, []string{address}) {
		h.State = Outdated
		servers[ours] = entry
		h.Changes = []Change{f.operatorChange(servers)}
	}
	return h
}

// servers returns a copy of the servers, and the index of ours, or -1.
func (f *Facts) servers() (list []any, ours int, err error) {
	list, _, err = unstructured.NestedSlice(f.Operator.Object, "spec", "servers")
	if err != nil {
		return nil, -1, fmt.Errorf("reading the servers of OpenShift's operator: %w", err)
	}
	for i, s := range list {
		m, ok := s.(map[string]any)
		if !ok {
			return nil, -1, fmt.Errorf("reading the servers of OpenShift's operator: server %d is no object", i)
		}
		if m["name"] != serverName {
			continue
		}
		if !slices.Equal(zones(m), []string{services.Domain}) {
			return nil, -1, fmt.Errorf("the server %q in the configuration of OpenShift's operator has other zones "+
				"than %s: "+
				"rename it", serverName, services.Domain)
		}
		return list, i, nil
	}
	return list, -1, nil
}

func zones(server any) []string {
	m, _ := server.(map[string]any)
	out, _, _ := unstructured.NestedStringSlice(m, "zones")
	return out
}

// operatorChange returns the change of the list of servers; an empty list is removed.
func (f *Facts) operatorChange(servers []any) Change {
	next := f.Operator.DeepCopy()
	if len(servers) == 0 {
		unstructured.RemoveNestedField(next.Object, "spec", "servers")
		return Change{f.Operator, next}
	}
	spec, _, _ := unstructured.NestedMap(next.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	spec["servers"] = servers
	next.Object["spec"] = spec
	return Change{f.Operator, next}
}

func (f *Facts) undoOperator(Hook) (Change, error) {
	if f.Operator == nil {
		return Change{}, nil
	}
	servers, ours, err := f.servers()
	if err != nil || ours < 0 {
		return Change{}, nil // it is not ours
	}
	return f.operatorChange(slices.Delete(servers, ours, ours+1)), nil
}

// asYAML returns a value of strings, maps and lists as YAML.
func asYAML(value any) string {
	b, err := yaml.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("strings, maps and lists are YAML: %v", err))
	}
	return string(b)
}
