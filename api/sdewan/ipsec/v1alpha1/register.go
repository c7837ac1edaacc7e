package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "sdewan.akraino.org", Version: "v1alpha1"}

// AddToScheme adds this package's kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&IpsecProposal{}, &IpsecProposalList{},
		&IpsecSite{}, &IpsecSiteList{},
		&IpsecHost{}, &IpsecHostList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
