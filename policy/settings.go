package policy

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// CopySettings returns a copy of p with the settings of the ConfigMaps that its rules name,
// which must be in the given namespace. If a ConfigMap cannot be read, its rule keeps the
// previous settings, and the error names the rule. find returns a ConfigMap of that
// namespace, or nil if it does not exist. CopySettings does not validate settings; Check does.
func CopySettings(
	p *v1alpha1.CablePolicies,
	namespace string,
	find func(name string) (*corev1.ConfigMap, error),
) (*v1alpha1.CablePolicies, error) {
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
func settings(
	ref v1alpha1.CableOptionsSource,
	namespace string,
	find func(name string) (*corev1.ConfigMap, error),
) (string, error) {
	if ref.Namespace != "" && ref.Namespace != namespace {
		return "", fmt.Errorf("namespace %s is not supported: move the ConfigMap to namespace %s", ref.Namespace,
			namespace)
	}
	cm, err := find(ref.Name)
	if err != nil {
		return "", err
	}
	if cm == nil {
		return "", fmt.Errorf("not found in namespace %s: create it, or remove its name from the policy", namespace)
	}
	text, err := cable.ConfigText(cm.Data)
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("it has no settings: put them under the key %s", v1alpha1.CableCustomConfig)
	}
	return text, err
}
