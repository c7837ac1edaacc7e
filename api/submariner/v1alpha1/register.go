package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "submariner.io", Version: "v1alpha1"}

// Names of the only object of each kind.
const (
	SubmarinerName = "submariner"
	BrokerName     = "submariner-broker"
)

// AddToScheme adds this package's kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Submariner{}, &SubmarinerList{},
		&Broker{}, &BrokerList{},
		&CablePolicies{}, &CablePoliciesList{},
		&ExportedServices{}, &ExportedServicesList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
