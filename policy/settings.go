package policy

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// CopySettings returns a policy with the settings of the ConfigMaps that it names, which
// have to be in a namespace. What could not be copied is as before, and the error says
// why, for each rule. find returns a ConfigMap of that namespace; nil if there is none.
// Whether the settings can be used is for Check.
func CopySettings(p *v1alpha1.CablePolicies, namespace string, find func(name string) (*corev1.ConfigMap, error)) (*v1alpha1.CablePolicies, error) {
	fresh := p.DeepCopy()
	var errs []error
	for i := range fresh.ConnectionPolicies {
		o := fresh.ConnectionPolicies[i].CableOptions
		if o == nil || o.Metadata.Name == "" {
			continue
		}
		text, err := settings(o.Metadata, namespace, find)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec[%d].options.metadata: ConfigMap %s: %w", i, o.Metadata.Name, err))
			continue
		}
		o.Data = map[string]string{v1alpha1.CableCustomConfig: text}
	}
	return fresh, errors.Join(errs...)
}

// settings returns the YAML of a ConfigMap.
func settings(ref v1alpha1.CableOptionsSource, namespace string, find func(name string) (*corev1.ConfigMap, error)) (string, error) {
	if ref.Namespace != "" && ref.Namespace != namespace {
		return "", fmt.Errorf("it is in namespace %s, but only those in %s are read: put it there", ref.Namespace, namespace)
	}
	cm, err := find(ref.Name)
	if err != nil {
		return "", err
	}
	if cm == nil {
		return "", fmt.Errorf("there is none in namespace %s: make it, or take its name out of the policy", namespace)
	}
	text, err := cable.ConfigText(cm.Data)
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("it has no settings: they go under the key %s", v1alpha1.CableCustomConfig)
	}
	return text, err
}
