BEGIN TRANSACTION;
CREATE TABLE sfumato_account (
	id INTEGER NOT NULL CHECK (id = 1), 
	sequence BIGINT NOT NULL, 
	head VARCHAR(64) NOT NULL, 
	spent BIGINT NOT NULL, 
	total BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT never_overspent CHECK (spent >= 0 AND spent <= total)
);
INSERT INTO "sfumato_account" VALUES(1,7,'364c8f645c581d8a87312ac5d5f6fc15f518687a9b1f6212c65dc8ed815dde98',208915009486643448,372654330048000000);
CREATE TABLE sfumato_answer (
	debit BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (debit)
);
INSERT INTO "sfumato_answer" VALUES(1,X'006E6F697379FF');
INSERT INTO "sfumato_answer" VALUES(5,X'616E737765722062');
CREATE TABLE sfumato_record (
	sequence BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (sequence)
);
INSERT INTO "sfumato_record" VALUES(0,'9c298ec9003c76fb4af82e6642ca412ef2e554f24b803635f5255eddac55e420','{"budget":{"delta":"1/1000000000","epsilon":"1"},"kind":"opened","neighbours":"add-remove","previous":"0000000000000000000000000000000000000000000000000000000000000000","pure_spent":null,"sequence":0,"spent":0,"table_id":"people#7f3a","time":"2026-01-02T03:04:05+00:00","version":1}');
INSERT INTO "sfumato_record" VALUES(1,'b27c9718e8e18c1431f7d312693ce565427927dd321d76316c46ca4f6c235110','{"cost":[{"epsilon":"1/4","kind":"pure","steps":1}],"key":"a","kind":"debited","owner":"host boot pid:[1] 1234 5678","previous":"9c298ec9003c76fb4af82e6642ca412ef2e554f24b803635f5255eddac55e420","pure_spent":null,"request":"{\"ask\":\"total\"}","sequence":1,"spent":93163582512000000,"time":"2026-01-02T03:04:05+00:00","version":1}');
INSERT INTO "sfumato_record" VALUES(2,'a91200db01863472a6df47754e159cfc11234b2f4398758fb0e20858c5a47717','{"answer_sha256":"76dac3c248265c893faa06412f753c5053eb99a2eba0e9c6dd1dfa4ad6228d04","debit":1,"kind":"answered","previous":"b27c9718e8e18c1431f7d312693ce565427927dd321d76316c46ca4f6c235110","pure_spent":null,"sequence":2,"spent":93163582512000000,"time":"2026-01-02T03:04:05+00:00","version":1}');
INSERT INTO "sfumato_record" VALUES(3,'c1f8b94f90136a9b1c1cae469d93aa2c1e768d69bf4a60fe7e3798078958fbf3','{"cost":[{"epsilon":"1/8","kind":"pure","steps":1}],"key":"b","kind":"debited","owner":"host boot pid:[1] 1234 5678","previous":"a91200db01863472a6df47754e159cfc11234b2f4398758fb0e20858c5a47717","pure_spent":null,"request":"{\"ask\":\"b\"}","sequence":3,"spent":139745373768000000,"time":"2026-01-02T03:04:05+00:00","version":1}');
INSERT INTO "sfumato_record" VALUES(4,'b678055a8cc0b734392ab11ca60995687bd57b23540d47358ad7939f009c2334','{"debit":3,"kind":"burnt","previous":"c1f8b94f90136a9b1c1cae469d93aa2c1e768d69bf4a60fe7e3798078958fbf3","pure_spent":null,"sequence":4,"spent":139745373768000000,"time":"2026-01-02T03:04:05+00:00","version":1}');
INSERT INTO "sfumato_record" VALUES(5,'ab1db39fef0900035fa1fd9e1ea593e425d64212ea530d4c3b612875ee7bf9aa','{"cost":[{"kind":"gaussian","mu_squared":"1/500"}],"key":"b","kind":"debited","owner":"host boot pid:[1] 1234 5678","previous":"b678055a8cc0b734392ab11ca60995687bd57b23540d47358ad7939f009c2334","pure_spent":139745373768000000,"request":"{\"ask\":\"b\"}","sequence":5,"spent":174330191627321724,"time":"2026-01-02T03:04:05+00:00","version":1}');
INSERT INTO "sfumato_record" VALUES(6,'08cc5dfc3e918a7cb26e1a48b2280bc7665912e4fe0867adf9d2bb8e7693d8d2','{"answer_sha256":"b70282215840e8e1e14b90fc160db89549ccc30385f95a005c0b329856aeb03c","debit":5,"kind":"answered","previous":"ab1db39fef0900035fa1fd9e1ea593e425d64212ea530d4c3b612875ee7bf9aa","pure_spent":139745373768000000,"sequence":6,"spent":174330191627321724,"time":"2026-01-02T03:04:05+00:00","version":1}');
INSERT INTO "sfumato_record" VALUES(7,'364c8f645c581d8a87312ac5d5f6fc15f518687a9b1f6212c65dc8ed815dde98','{"cost":[{"kind":"gaussian","mu_squared":"1/500"}],"key":"c","kind":"debited","owner":"host boot pid:[1] 1234 5678","previous":"08cc5dfc3e918a7cb26e1a48b2280bc7665912e4fe0867adf9d2bb8e7693d8d2","pure_spent":139745373768000000,"request":"{\"ask\":\"c\"}","sequence":7,"spent":208915009486643448,"time":"2026-01-02T03:04:05+00:00","version":1}');
CREATE TABLE sfumato_request (
	"key" VARCHAR(200) NOT NULL, 
	debit BIGINT NOT NULL, 
	state VARCHAR(8) NOT NULL, 
	closed BIGINT, 
	PRIMARY KEY ("key")
);
INSERT INTO "sfumato_request" VALUES('a',1,'answered',2);
INSERT INTO "sfumato_request" VALUES('b',5,'answered',6);
INSERT INTO "sfumato_request" VALUES('c',7,'reserved',NULL);
COMMIT;
