package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNFRoute is a route of the CNF.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.metadata.labels.sdewanPurpose`
// +kubebuilder:printcolumn:name="In Sync",type=boolean,JSONPath=`.status.inSync`
// +kubebuilder:printcolumn:name="Applied",type=date,JSONPath=`.status.appliedTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].message`,priority=1
// +kubebuilder:validation:XValidation:rule=`!self.metadata.name.matches('[A-Z_]')`,messageExpression="'write the name ' + self.metadata.name.lowerAscii().replace('_', '-')"
type CNFRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CNFRouteSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *CNFRoute) RuleStatus() *RuleStatus { return &r.Status }

// CNFRouteList is a list of CNFRoute objects.
//
// +kubebuilder:object:root=true
type CNFRouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CNFRoute `json:"items"`
}

// CNFRouteSpec describes a route.
//
// +kubebuilder:validation:XValidation:rule=`self.dst != ""`,message="dst is required: a network, an address, or default"
// +kubebuilder:validation:XValidation:rule=`self.dev != ""`,message="dev is required: the device by which packets leave"
type CNFRouteSpec struct {
	// Dst is the network to which the route leads, an address, or "default" for all.
	Dst Destination `json:"dst"`
	// GW is the address of the next router.
	// +optional
	GW IP `json:"gw,omitempty"`
	// Dev is the device by which packets leave: its name, a network of the CNF, "#default" for the
	// device of the default route, or "#" and one of its addresses.
	Dev Device `json:"dev"`
	// Table is default, the main table, or cnf, the table of CNFRouteRules and SdewanApplications.
	// The default is default.
	// +optional
	// +kubebuilder:validation:Enum="";default;cnf
	Table string `json:"table,omitempty"`
}
