package join

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cluster"
)

// configRef returns the ConfigMap that --cable-driver-config names; nil if it is not set.
func (o Options) configRef() *v1alpha1.ConfigMapRef {
	if o.CableDriverConfig == "" {
		return nil
	}
	ns, name, ok := strings.Cut(o.CableDriverConfig, "/")
	if !ok {
		ns, name = cluster.Namespace, ns
	}
	return &v1alpha1.ConfigMapRef{ConfigMapName: name, Namespace: ns}
}

// checkConfig returns the mistakes in the name of that ConfigMap.
func (o Options) checkConfig() error {
	var errs []error
	if ref := o.configRef(); ref != nil {
		if ref.Namespace != cluster.Namespace {
			errs = append(
				errs,
				fmt.Errorf(
					"%s %s is in namespace %q, but the agents may read only ConfigMaps of their own namespace: create it in %s",
					o.source("cable-driver-config"), o.CableDriverConfig, ref.Namespace, cluster.Namespace),
			)
		}
		for _, text := range validation.IsDNS1123Subdomain(ref.ConfigMapName) {
			errs = append(
				errs,
				fmt.Errorf("%s: %q is not a valid name of a ConfigMap: %s", o.source("cable-driver-config"),
					ref.ConfigMapName, text),
			)
		}
	}
	return errors.Join(errs...)
}

// checkConfigMap warns if the ConfigMap with the settings of the drivers cannot be used.
func checkConfigMap(r request) ([]string, error) {
	ref := r.configRef()
	found := r.member.CableConfig
	if ref == nil {
		return nil, nil
	}
	why := "it does not exist"
	if found != nil {
		text, err := cable.ConfigText(found.Data)
		if err == nil {
			_, err = cable.ParseConfig(text, drivers.All())
		}
		if err == nil {
			return nil, nil
		}
		why = fmt.Sprintf("key %s: %v", v1alpha1.CableCustomConfig, err)
	}
	return []string{
		fmt.Sprintf(
			"ConfigMap %s/%s, which --cable-driver-config names: %s: until that is fixed, the previous settings apply, or the defaults",
			ref.Namespace, ref.ConfigMapName, why),
	}, nil
}
