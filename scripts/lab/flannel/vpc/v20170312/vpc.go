// Package v20170312 takes the place of a cloud's library, which the module proxy does not have. A
// backend of flannel that the lab does not use is compiled with it, so that flanneld itself is
// upstream's, unmodified. Every call fails.
package v20170312

import "errors"

var errNotHere = errors.New("this flanneld was built without the backend tencent-vpc")

type (
	Client struct{}
	Filter struct {
		Name   *string
		Values []*string
	}
	Route struct {
		RouteId                                                 *uint64
		DestinationCidrBlock, GatewayId, GatewayType, RouteType *string
		Enabled                                                 *bool
	}
	RouteTable struct {
		RouteTableId *string
		RouteSet     []*Route
	}
	DescribeRouteTablesRequest  struct{ Filters []*Filter }
	DescribeRouteTablesResponse struct {
		Response struct{ RouteTableSet []*RouteTable }
	}
	routes struct {
		RouteTableId *string
		Routes       []*Route
	}
	CreateRoutesRequest routes
	DeleteRoutesRequest routes
)

func NewClientWithSecretId(_, _, _ string) (*Client, error) { return &Client{}, errNotHere }
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}
func NewCreateRoutesRequest() *CreateRoutesRequest { return &CreateRoutesRequest{} }
func NewDeleteRoutesRequest() *DeleteRoutesRequest { return &DeleteRoutesRequest{} }

func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errNotHere
}
func (*Client) CreateRoutes(*CreateRoutesRequest) (any, error) { return nil, errNotHere }
func (*Client) DeleteRoutes(*DeleteRoutesRequest) (any, error) { return nil, errNotHere }
