BEGIN TRANSACTION;
CREATE TABLE sfumato_account (
        id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
        sequence BIGINT NOT NULL,
        head VARCHAR(64) NOT NULL,
        spent BIGINT NOT NULL,
        total BIGINT NOT NULL,
        CONSTRAINT never_overspent CHECK (spent >= 0 AND spent <= total));
INSERT INTO "sfumato_account" VALUES(1,6,'46ae10d8b9dbc31cd6f442835211b8abfaa6c883c4e2c6d7c9086f41f74e0f5b',139745373768000000,372654330048000000);
CREATE TABLE sfumato_allowance (
        analyst VARCHAR(200) NOT NULL PRIMARY KEY,
        budget TEXT NOT NULL,
        spent BIGINT NOT NULL,
        pure_spent BIGINT);
CREATE TABLE sfumato_answer (
        debit BIGINT NOT NULL PRIMARY KEY,
        data BLOB NOT NULL);
INSERT INTO "sfumato_answer" VALUES(1,X'616E73776572206F662073657373696F6E206162207265636F7264732031');
INSERT INTO "sfumato_answer" VALUES(3,X'616E73776572206F6620726F77');
INSERT INTO "sfumato_answer" VALUES(5,X'616E73776572206F6620706572736F6E');
CREATE TABLE sfumato_free (
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        sequence BIGINT NOT NULL,
        data BLOB NOT NULL);
CREATE TABLE sfumato_record (
        sequence BIGINT NOT NULL PRIMARY KEY,
        hash VARCHAR(64) NOT NULL,
        text TEXT NOT NULL);
INSERT INTO "sfumato_record" VALUES(0,'105e7e1f12357870b8f5411e179d9e1ef83a80826e0bd61bdf505695842b42a4','{"budget":{"epsilon":"4"},"kind":"opened","neighbours":"add-remove","previous":"0000000000000000000000000000000000000000000000000000000000000000","pure_spent":null,"sequence":0,"spent":0,"table_id":"visits","time":"2026-01-02T03:04:05+00:00","version":2}');
INSERT INTO "sfumato_record" VALUES(1,'c1225b0ffd1f39c695d2694a9c86f066c804e4eb169981bba85ce7b9128d71a3','{"cost":[{"epsilon":"1/2","kind":"pure","steps":1}],"key":"session ab records 1","kind":"debited","owner":"an older machine","previous":"105e7e1f12357870b8f5411e179d9e1ef83a80826e0bd61bdf505695842b42a4","pure_spent":null,"request":"{\"records\":\"0000000000000000\",\"session\":\"session ab\"}","sequence":1,"spent":46581791256000000,"time":"2026-01-02T03:04:05+00:00","version":2}');
INSERT INTO "sfumato_record" VALUES(2,'349121c763dc20f3698f8be5f10e15b7d331ee28e8fd7af8367dd134e39c9797','{"answer_sha256":"45da0c5e166f7036d9a21d05f83fe038078be40fef78db97f7a0cf08a4aa8385","debit":1,"kind":"answered","previous":"c1225b0ffd1f39c695d2694a9c86f066c804e4eb169981bba85ce7b9128d71a3","pure_spent":null,"sequence":2,"spent":46581791256000000,"time":"2026-01-02T03:04:05+00:00","version":2}');
INSERT INTO "sfumato_record" VALUES(3,'1548e55018426169b73563fa14484f4383d89f3f900e9ca1cce0c02bf84d15fa','{"cost":[{"epsilon":"1/2","kind":"pure","steps":1}],"key":"row","kind":"debited","owner":"an older machine","previous":"349121c763dc20f3698f8be5f10e15b7d331ee28e8fd7af8367dd134e39c9797","pure_spent":null,"request":"{\"budget\":{\"epsilon\":\"1/2\"},\"mechanism\":\"laplace\",\"neighbours\":\"add-remove\",\"unit\":null,\"workload\":\"w\"}","sequence":3,"spent":93163582512000000,"time":"2026-01-02T03:04:05+00:00","version":2}');
INSERT INTO "sfumato_record" VALUES(4,'ca6e1e43c4bda36ad06b72427d6f9b3a33925a46aabb4092b1461c765cf3a231','{"answer_sha256":"f03e8dd4a809defe75ce03050251aa55d30226d69d3424b9c3aa1f0370c8b784","debit":3,"kind":"answered","previous":"1548e55018426169b73563fa14484f4383d89f3f900e9ca1cce0c02bf84d15fa","pure_spent":null,"sequence":4,"spent":93163582512000000,"time":"2026-01-02T03:04:05+00:00","version":2}');
INSERT INTO "sfumato_record" VALUES(5,'f616566a64d1ec5117568ca1550936a9252390e40075f858d4b8e11f6355d8dd','{"cost":[{"epsilon":"1/2","kind":"pure","steps":1}],"key":"person","kind":"debited","owner":"an older machine","previous":"ca6e1e43c4bda36ad06b72427d6f9b3a33925a46aabb4092b1461c765cf3a231","pure_spent":null,"request":"{\"budget\":{\"epsilon\":\"1/2\"},\"mechanism\":\"laplace\",\"neighbours\":\"add-remove\",\"unit\":{\"column\":\"patient\",\"rows\":500},\"workload\":\"w\"}","sequence":5,"spent":139745373768000000,"time":"2026-01-02T03:04:05+00:00","version":2}');
INSERT INTO "sfumato_record" VALUES(6,'46ae10d8b9dbc31cd6f442835211b8abfaa6c883c4e2c6d7c9086f41f74e0f5b','{"answer_sha256":"a02d586f6e680e71c3b547aaed6f56c201edb9319d688d431c67ce8e254dd890","debit":5,"kind":"answered","previous":"f616566a64d1ec5117568ca1550936a9252390e40075f858d4b8e11f6355d8dd","pure_spent":null,"sequence":6,"spent":139745373768000000,"time":"2026-01-02T03:04:05+00:00","version":2}');
CREATE TABLE sfumato_request (
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        debit BIGINT NOT NULL,
        state VARCHAR(8) NOT NULL,
        closed BIGINT);
INSERT INTO "sfumato_request" VALUES('session ab records 1',1,'answered',2);
INSERT INTO "sfumato_request" VALUES('row',3,'answered',4);
INSERT INTO "sfumato_request" VALUES('person',5,'answered',6);
CREATE TABLE sfumato_state (
        name VARCHAR(200) NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        sequence BIGINT NOT NULL,
        salt BLOB NOT NULL,
        data BLOB NOT NULL);
COMMIT;
