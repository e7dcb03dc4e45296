drop table model_endpoints, secrets, sealed_values, house_keys;
