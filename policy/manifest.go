package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/internal/words"
)

// Manifest is the content of files for kubectl.
type Manifest struct {
	Policies []*v1alpha1.CablePolicies
	// ConfigMaps are settings, which the policies name.
	ConfigMaps []*corev1.ConfigMap
}

// Load returns the content of files, by their names for errors, as it is written to a
// cluster, or everything that is wrong with it.
func Load(names []string, contents [][]byte) (Manifest, error) {
	var all Manifest
	var errs []error
	from := map[string]string{} // the file, by kind, namespace and name
	once := func(file, what string, o metav1.Object) {
		key := what + " " + o.GetNamespace() + "/" + o.GetName()
		if was, ok := from[key]; ok {
			where := "is in it twice"
			if was != file {
				where = "is in " + was + " too"
			}
			errs = append(errs, fmt.Errorf("%s: %s %q %s", file, what, o.GetName(), where))
		}
		from[key] = file
	}
	for i, name := range names {
		m, mistakes := readFile(contents[i])
		for _, err := range mistakes {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		for _, p := range m.Policies {
			strip(p)
			errs = append(errs, words.Prefix(fmt.Sprintf("%s: policy %q: ", name, p.Name), Check(p)))
			once(name, "policy", p)
		}
		for _, cm := range m.ConfigMaps {
			cm.ObjectMeta = fresh(&cm.ObjectMeta)
			once(name, configMapKind, cm)
		}
		all.Policies, all.ConfigMaps = append(all.Policies, m.Policies...), append(all.ConfigMaps, m.ConfigMaps...)
	}
	for _, cm := range all.ConfigMaps {
		if all.names(cm.Name) { // kubectl get prints all ConfigMaps, and every namespace has kube-root-ca.crt
			file := from[configMapKind+" "+cm.Namespace+"/"+cm.Name]
			errs = append(errs, words.Prefix(fmt.Sprintf("%s: ConfigMap %q: ", file, cm.Name), checkConfigMap(cm)))
		}
	}
	return all, errors.Join(errs...)
}

// names reports whether a policy names a ConfigMap.
func (m Manifest) names(configMap string) bool {
	return slices.ContainsFunc(m.Policies, func(p *v1alpha1.CablePolicies) bool {
		return slices.ContainsFunc(p.ConnectionPolicies, func(r v1alpha1.CablePolicySpec) bool {
			return r.CableOptions != nil && r.CableOptions.Metadata.Name == configMap
		})
	})
}

// strip removes from a policy what belongs to the cluster from which it was read. A copy of
// another cluster's policy gets the name of that policy.
func strip(p *v1alpha1.CablePolicies) {
	p.Name = p.SharedName()
	delete(p.Labels, submarinerv1.ClusterIDLabel)
	p.ObjectMeta = fresh(&p.ObjectMeta)
}

// fresh returns the metadata of an object that is to be created like another one.
func fresh(m *metav1.ObjectMeta) metav1.ObjectMeta {
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations}
}

// checkConfigMap returns an error if a ConfigMap has no settings, or no name.
func checkConfigMap(cm *corev1.ConfigMap) error {
	_, err := cable.ConfigText(cm.Data)
	if len(validation.IsDNS1123Subdomain(cm.Name)) > 0 {
		err = errors.Join(
			fmt.Errorf(
				"metadata.name: %s is not the name of a ConfigMap: use at most 253 lower case letters, digits, '-' and '.'",
				quote(cm.Name)),
			err,
		)
	}
	return err
}

const configMapKind = "ConfigMap"

// readConfigMap adds a ConfigMap.
func (m *Manifest) readConfigMap(text []byte) error {
	var loose struct {
		Data map[string]any `json:"data"`
	}
	if json.Unmarshal(text, &loose) == nil {
		if err := checkIndent(loose.Data); err != nil {
			return err
		}
	}
	cm := &corev1.ConfigMap{}
	if err := strict(text, cm, ""); err != nil {
		return err
	}
	m.ConfigMaps = append(m.ConfigMaps, cm)
	return nil
}

// checkIndent returns an error with the change to make if the settings are not below their
// key, which is easily overlooked in YAML.
func checkIndent(data map[string]any) error {
	if text, ok := data[v1alpha1.CableCustomConfig]; !ok || text != "" && text != nil {
		return nil
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(data)) {
		if k != v1alpha1.CableCustomConfig {
			fmt.Fprintf(&b, "\n      %s: %v", k, data[k])
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return fmt.Errorf("the settings are beside the key %s, which is empty: indent them below it:\n  data:\n    %s: |%s",
		v1alpha1.CableCustomConfig, v1alpha1.CableCustomConfig, b.String())
}
